"""Entry point of the data job's container: `split.sh` runs this file, whose folder holds
`paddle_node`.
"""

import sys

from paddle_node.data.job import main

if __name__ == "__main__":
    sys.exit(main())
