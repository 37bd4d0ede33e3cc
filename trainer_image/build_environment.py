"""Entry point of the environment Job's container, whose folder holds `paddle_node`."""

import sys
from pathlib import Path

# Before all else: the agent's own versions (paddle_node/__init__).
sys.path.insert(1, str(Path(sys.prefix, "agent")))

from paddle_node.requirements.build import main
from paddle_node.trust import trust_certificates

if __name__ == "__main__":
    trust_certificates()
    sys.exit(main())
