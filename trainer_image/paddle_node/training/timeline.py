"""Where the time between the start of a trainer and its first batch goes: one line of the log, which benchmarks/ read."""

import json
import os
import time
from pathlib import Path

LINE = "first batch: "


class Timeline:
    """Marks in the order in which they are made; each names what has just ended."""

    def __init__(self) -> None:
        self._marks: list[tuple[str, float]] = []

    def mark(self, name: str) -> None:
        self._marks.append((name, time.time()))

    def line(self) -> str:
        # Since boot: when the kernel started this process, to a hundredth of a second.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
        parts, last = {}, began
        for name, when in self._marks:
            parts[name] = round(when - last, 3)
            last = when
        return f"{LINE}{json.dumps({'began': round(began, 3), 'seconds': round(last - began, 3), **parts})}"
