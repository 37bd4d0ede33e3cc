"""Sixteen pictures in two classes, and their list. Argument: where they go."""

import sys
from pathlib import Path

import numpy
from PIL import Image

place, random = Path(sys.argv[1]), numpy.random.default_rng(0)
lines = []
for number in range(16):
    pixels = random.integers(0, 90, (32, 32, 3), "uint8") + 120 * (number % 2)
    Image.fromarray(pixels.astype("uint8")).save(place / f"{number}.jpg")
    lines.append(f"{number}.jpg {number % 2}\n")
(place / "list.txt").write_text("".join(lines))
