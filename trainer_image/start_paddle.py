#!/usr/bin/env python3
"""What `start.sh` runs in a training pod: this file's own folder is where `paddle_node` lies."""

import os
import sys

from paddle_node.__main__ import main

if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
