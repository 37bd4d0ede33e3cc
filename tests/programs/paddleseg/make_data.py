"""Bright circles on a dark ground, and their masks. Argument: where the data goes."""

import sys
from pathlib import Path

import cv2
import numpy as np

place = Path(sys.argv[1])
(place / "pictures").mkdir(parents=True, exist_ok=True)
random = np.random.default_rng(0)
lines = []
for number in range(32):
    picture = random.integers(0, 80, (64, 64, 3)).astype("uint8")
    mask = np.zeros((64, 64), "uint8")
    centre = tuple(int(x) for x in random.integers(16, 48, 2))
    cv2.circle(picture, centre, 12, (80, 160, 120), -1)
    cv2.circle(mask, centre, 12, 1, -1)
    cv2.imwrite(str(place / f"pictures/{number}.png"), picture)
    cv2.imwrite(str(place / f"pictures/{number}_mask.png"), mask)
    lines.append(f"pictures/{number}.png pictures/{number}_mask.png\n")
(place / "train.txt").write_text("".join(lines))
