#!/usr/bin/env python3
"""Entry point of a training pod: `start.sh` runs this file, whose folder holds `paddle_node`."""

import runpy

runpy.run_module("paddle_node", run_name="__main__")
