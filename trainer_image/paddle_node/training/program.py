"""Runs a user's training program: `python -m paddle_node.training.program <train.py> <arguments>`.

To the program this looks like `python <train.py> <arguments>`, in a process that can load Paddle
safely.
"""

import runpy
import sys
import zlib  # noqa: F401  Paddle 2.6.2 brings its own zlib: Python's crashes (inflateReset2) unless it was loaded first.
from pathlib import Path


def run() -> None:
    """Runs the program in `sys.argv[0]`."""
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    run()
