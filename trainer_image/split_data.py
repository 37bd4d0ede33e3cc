"""Entry of the data job's container: `split.sh` runs this file, whose folder is where `paddle_node` lies."""

import sys

from paddle_node.data.job import main

if __name__ == "__main__":
    sys.exit(main())
