"""One line a second that says how far the split is and when it will be done.

Promises: cheap enough to be called for each block by several threads; silent between the lines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Progress:
    """Bytes done of the phase in hand."""

    def __init__(self, say: Callable[[str], None], interval: float = 1.0) -> None:
        self.say = say
        self._interval = interval
        self._lock = threading.Lock()
        self._phase = ""
        self._done = 0
        self._given = 0
        self._total: int | None = None
        self._started = self._spoken = time.monotonic()

    def phase(self, name: str, total: int | None) -> None:
        """Begins a phase of `total` bytes (None: nobody knows)."""
        with self._lock:
            self._phase, self._total, self._done, self._given = name, total, 0, 0
            self._started = self._spoken = time.monotonic()

    def add(self, count: int) -> None:
        """`count` more bytes are done by this process."""
        with self._lock:
            self._done += count

    def give(self, count: int) -> None:
        """`count` bytes were done before, or by another pod: they do not count for the rate."""
        with self._lock:
            self._done += count
            self._given += count

    def tick(self) -> None:
        """Says the line when a second has passed since the last one."""
        now = time.monotonic()
        with self._lock:
            if not self._phase or now - self._spoken < self._interval:
                return
            self._spoken = now
            line = _line(self._phase, self._done, self._given, self._total, now - self._started)
        self.say(line)


def _line(phase: str, done: int, given: int, total: int | None, seconds: float) -> str:
    rate = (done - given) / seconds
    text = f"{phase}: {_size(done)}"
    if total:
        text += f" of {_size(total)}, {min(100, done * 100 // total)} %"
    if rate > 0:
        text += f", {_size(rate)}/s"
        if total and done < total:
            text += f", about {_duration((total - done) / rate)} left"
    return text


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in ("B", "kB") or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
