"""Numbers that repeat, as tokens. Argument: where they go."""

import sys
from pathlib import Path

import numpy

for name in ("train", "val"):
    numpy.tile(numpy.arange(50, dtype="uint16"), 60).tofile(Path(sys.argv[1]) / f"{name}.bin")
