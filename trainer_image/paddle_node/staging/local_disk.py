"""The pod's own disk as a place for a trainer's shard: how much may lie there, and whether it pays, which is measured."""

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ALWAYS, AUTO, NEVER = CHOICES = ("always", "auto", "never")
SAMPLE = 16 << 20
"""Bytes that are tried; a smaller shard is read once, and kept in memory by the kernel."""
LONGEST = 2.0
"""Seconds of reading after which less than `SAMPLE` must do."""
WORTH = 5.0
"""Seconds that a copy must save over the whole job: below that the measurement means nothing."""
LEFT_FREE = 0.5
"""Part of the room that the program keeps for its own files, where nobody asked for the copy."""
BLOCK = 1 << 20


@dataclass(frozen=True)
class LocalDisk:
    """Where a copy may lie, and when one is made."""

    folder: Path
    when: str = ALWAYS
    """One of `CHOICES`; `AUTO`: where it is faster."""
    passes: int = 1
    """How often the job reads its shard."""
    room: int | None = None
    """Bytes that the pod's scratch may take: above them Kubernetes evicts the pod, whatever the disk has free. None: no limit."""

    def free(self) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        status = os.statvfs(self.folder)
        here = status.f_bavail * status.f_frsize
        return here if self.room is None else min(here, self.room)

    def saves(self, files: Sequence[Path], size: int) -> tuple[float, str]:
        """Seconds that a copy of `files`, `size` bytes, saves over all passes, and what was measured, in words."""
        self.folder.mkdir(parents=True, exist_ok=True)
        trial = self.folder / f".trial.{os.getpid()}.tmp"
        try:
            tried, reading, writing = _try(files, trial)
        finally:
            with contextlib.suppress(OSError):
                trial.unlink(missing_ok=True)
        if not tried:
            return 0.0, "the shard is empty"
        saved = (self.passes * (reading - writing) - writing) * size / tried
        rates = f"{_rate(tried, reading)} on the volume, {_rate(tried, writing)} on local disk"
        return saved, f"{rates}, {self.passes} passes over {size / 1e6:.0f} MB"


def _try(files: Sequence[Path], trial: Path) -> tuple[int, float, float]:
    buffer = memoryview(bytearray(BLOCK))
    tried, reading, writing = 0, 0.0, 0.0
    with trial.open("wb", buffering=0) as copy:
        for file in files:
            began = time.perf_counter()
            # Opening counts: it is what reading many small files from a network takes.
            with file.open("rb", buffering=0) as stream:
                while tried < SAMPLE and reading < LONGEST and (filled := stream.readinto(buffer)):
                    now = time.perf_counter()
                    reading += now - began
                    copy.write(buffer[:filled])
                    began = time.perf_counter()
                    writing += began - now
                    tried += filled
            reading += time.perf_counter() - began
            if tried >= SAMPLE or reading >= LONGEST:
                break
        began = time.perf_counter()
        os.fsync(copy.fileno())
        writing += time.perf_counter() - began
    return tried, reading, writing


def _rate(count: int, seconds: float) -> str:
    return f"{count / 1e6 / max(seconds, 1e-9):,.0f} MB/s"
