"""Entry point of the data job's container: `split.sh` runs this file, whose folder holds
`paddle_node`.
"""

import sys
from pathlib import Path

# Before all that a program's requirements brought: the agent's own versions (paddle_node/__init__).
sys.path.insert(1, str(Path(sys.prefix, "agent")))

from paddle_node.data.job import main
from paddle_node.trust import trust_certificates

if __name__ == "__main__":
    trust_certificates()
    sys.exit(main())
