"""The pod's disk as a place for a trainer's shard: how much may be stored there, and whether a
measurement shows that this is faster.
"""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ALWAYS, AUTO, NEVER = CHOICES = ("always", "auto", "never")
SAMPLE = 16 << 20
"""Bytes used for the measurement. The kernel keeps a smaller shard in memory once it has been
read.
"""
SAMPLE_SECONDS = 2.0
"""Seconds of reading after which fewer bytes than `SAMPLE` must do."""
WORTHWHILE_SECONDS = 5.0
"""Seconds that a copy must save over the whole job: below that, the measurement means nothing."""
LEFT_FREE = 0.5
"""Share of the free space that the program keeps for its own files if nobody asked for the copy."""
BLOCK = 1 << 20


@dataclass(frozen=True)
class LocalDisk:
    """Where to store a copy, and when to make one."""

    folder: Path
    when: str = ALWAYS
    """One of `CHOICES`; `AUTO`: if a copy is faster."""
    passes: int = 1
    """How often the job reads its shard."""
    room: int | None = None
    """Maximum bytes of the pod's scratch: above it, Kubernetes evicts the pod even if the disk has
    space. None: no limit.
    """

    def free(self) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        status = os.statvfs(self.folder)
        here = status.f_bavail * status.f_frsize
        return here if self.room is None else min(here, self.room)

    def saves(self, files: Sequence[Path], size: int) -> tuple[float, str]:
        """Returns the seconds that a copy of `files` (`size` bytes) saves over all passes, and the
        measurement in words.
        """
        began, sample = time.perf_counter(), bytearray()
        for block in _blocks(files):
            sample += block
            if len(sample) >= SAMPLE or time.perf_counter() - began >= SAMPLE_SECONDS:
                break
        read = time.perf_counter()
        with tempfile.TemporaryFile(dir=self.folder) as trial:
            trial.write(sample)
            trial.flush()
            os.fsync(trial.fileno())
        reading, writing, tried = read - began, time.perf_counter() - read, max(len(sample), 1)
        saved = (self.passes * (reading - writing) - writing) * size / tried
        rates = [f"{tried / 1e6 / max(seconds, 1e-9):,.0f} MB/s" for seconds in (reading, writing)]
        return (
            saved,
            f"{rates[0]} on the volume, {rates[1]} on local disk, {self.passes} passes over "
            f"{size / 1e6:.0f} MB",
        )


def _blocks(files: Sequence[Path]) -> Iterator[bytes]:
    for file in files:
        # Opening counts too: it is what takes the time when reading many small files over a
        # network.
        with file.open("rb", buffering=0) as stream:
            yield from iter(partial(stream.read, BLOCK), b"")
