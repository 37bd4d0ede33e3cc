#!/usr/bin/env python3
"""What `start.sh` runs in a training pod: this file's own folder is where `paddle_node` lies."""

import runpy

runpy.run_module("paddle_node", run_name="__main__")
