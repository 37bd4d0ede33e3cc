"""Sentences of twenty words, each behind its own predecessor. Argument: where they go."""

import sys
from pathlib import Path

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
for name, count in (("train", 900), ("valid", 100), ("test", 100)):
    lines = (" ".join(WORDS[(n + k) % 11] for k in range(20)) for n in range(count))
    (Path(sys.argv[1]) / f"{name}.txt").write_text("\n".join(lines) + "\n")
