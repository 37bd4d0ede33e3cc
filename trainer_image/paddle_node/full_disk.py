"""Which disk took no more bytes: the job's volume, unless something shows that it was the pod's own scratch."""

import errno
import os
from pathlib import Path

NOTHING = 64 << 10
"""Bytes: with fewer left a disk is full."""


def is_full(error: OSError) -> bool:
    """Whether it says so of a disk, or of a quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def scratch(error: OSError, volume: Path) -> Path | None:
    """The path outside `volume` that is full; None: it is the volume."""
    try:
        volume = volume.resolve()
        if error.filename is not None:
            path = Path(os.fsdecode(error.filename)).resolve()
            return None if path.is_relative_to(volume) else path
        # A write's error names no file: the processes' working folder is the pod's scratch.
        here = Path.cwd()
        if here.stat().st_dev == volume.stat().st_dev:
            return None
        return here if _left(here) < NOTHING <= _left(volume) else None
    except OSError:
        return None


def _left(folder: Path) -> int:
    status = os.statvfs(folder)
    return NOTHING if status.f_flag & os.ST_RDONLY else status.f_bavail * status.f_frsize
