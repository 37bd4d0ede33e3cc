"""Four speakers with four utterances each. Argument: where they go."""

import sys
from pathlib import Path

import numpy

place, random = Path(sys.argv[1]), numpy.random.default_rng(0)
for speaker in range(4):
    folder = place / f"speaker{speaker}"
    folder.mkdir()
    for number in range(4):
        sound = random.normal(speaker, 1, (30, 8)).astype("float32")
        numpy.save(folder / f"{number}.npy", sound)
