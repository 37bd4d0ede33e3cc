"""Pictures of numbers with four digits. Argument: where the data goes."""

import sys
from pathlib import Path

import cv2
import numpy as np

place = Path(sys.argv[1])
(place / "words").mkdir(parents=True, exist_ok=True)
random = np.random.default_rng(0)
lines = []
for number in range(64):
    word = "".join(random.choice(list("0123456789"), 4))
    picture = np.full((32, 100, 3), 255, "uint8")
    cv2.putText(picture, word, (5, 25), cv2.FONT_HERSHEY_SIMPLEX, 0.9, (0, 0, 0), 2)
    cv2.imwrite(str(place / f"words/{number}.png"), picture)
    lines.append(f"words/{number}.png\t{word}\n")
(place / "train.txt").write_text("".join(lines))
