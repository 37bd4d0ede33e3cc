"""Makes sample data for quick_start: `label<TAB>text` lines in which a few words of each text
betray its label.

The bytes are always the same. The labels are not equally common, words are drawn as in natural text
(a few very often, most of them rarely), and every tenth text carries no hint at all, so that no
model can be perfect.
"""

import argparse
import random
from itertools import accumulate
from pathlib import Path

LABELS = ("arts", "health", "science", "sport")
SHARES = (4, 2, 3, 1)
HINTS = 40  # Words that belong to one label,
COMMON = 3000  # and words that belong to none.


def lines(count):
    draw = random.Random(1)
    hints = {label: [f"{label}{number}" for number in range(HINTS)] for label in LABELS}
    common = [f"word{number}" for number in range(COMMON)]
    weights = list(accumulate(1 / (rank + 2) for rank in range(COMMON)))
    for _ in range(count):
        (label,) = draw.choices(LABELS, SHARES)
        text = draw.choices(common, cum_weights=weights, k=draw.randint(6, 24))
        if draw.random() < 0.9:
            text += draw.choices(hints[label], k=draw.randint(1, 3))
            if draw.random() < 0.2:  # Now and then, a word of another label.
                text += draw.choices(hints[draw.choice(LABELS)])
        draw.shuffle(text)
        yield f"{label}\t{' '.join(text)}\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--lines", type=int, default=3000)
    options = parser.parse_args()
    with options.file.open("w") as stream:
        stream.writelines(lines(options.lines))
