"""Writes the sample data of this example: `python make_sample.py sample.csv`.

Two interleaved spirals, one class each: x, y, class. Always the same bytes.
"""

import math
import random
import sys
from pathlib import Path

POINTS = 1800


chance = random.Random(1)
lines = []
for number in range(POINTS):
    turn, label = chance.uniform(0.4, 2.6), number % 2
    angle = turn * math.pi + label * math.pi
    x, y = (turn * part(angle) + chance.gauss(0, 0.08) for part in (math.cos, math.sin))
    lines.append(f"{x:.4f},{y:.4f},{label}\n")
Path(sys.argv[1]).write_text("".join(lines))
