#!/usr/bin/env python3
"""Entry point of a training pod: `start.sh` runs this file, whose folder holds `paddle_node`."""

import runpy
import sys
from pathlib import Path

# Before all that a program's requirements brought: the agent's own versions (paddle_node/__init__).
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(sys.prefix, "agent"))]
runpy.run_module("paddle_node", run_name="__main__")
