"""Pictures of two colours. Argument: where they go."""

import sys
from pathlib import Path

import numpy
from PIL import Image

random = numpy.random.default_rng(0)
for split, count in (("train", 32), ("validation", 8)):
    for label, colour in enumerate(("red", "blue")):
        folder = Path(sys.argv[1]) / split / colour
        folder.mkdir(parents=True)
        for number in range(count):
            picture = random.integers(0, 90, (32, 32, 3), dtype="uint8")
            picture[:, :, 2 * label] += 120
            Image.fromarray(picture).save(folder / f"{number}.png")
