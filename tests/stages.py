"""Runs stages one after another up to the first that fails, and says what each took:
`python tests/stages.py NAME COMMAND [NAME COMMAND ...]`. Standard library only: it runs before
anything is installed.
"""

import os
import subprocess
import sys
import time


def main() -> int:
    taken, code = [], 0
    for name, command in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        began, before = time.monotonic(), os.times()
        code = subprocess.run(command, shell=True).returncode
        after = os.times()
        processor = sum(after[2:4]) - sum(before[2:4])
        taken.append(f"  {name:40}{(time.monotonic() - began) / 60:8.1f}{processor / 60:12.1f}")
        if code:
            taken[-1] += "  failed"
            break
    print(f"\n{'stage, minutes':42}{'clock':>8}{'processor':>12}", *taken, sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
