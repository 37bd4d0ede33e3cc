"""Pictures in MNIST's format, which PaddleGAN reads by the hundred. Argument: where they go."""

import gzip
import struct
import sys
from pathlib import Path

import numpy

place, random = Path(sys.argv[1]), numpy.random.default_rng(0)
pixels = random.integers(0, 255, (100, 28, 28), "uint8")
labels = random.integers(0, 10, 100).astype("uint8")
with gzip.open(place / "images.gz", "wb") as file:
    file.write(struct.pack(">IIII", 2051, *pixels.shape) + pixels.tobytes())
with gzip.open(place / "labels.gz", "wb") as file:
    file.write(struct.pack(">II", 2049, 100) + labels.tobytes())
