"""Faults of a volume that pass by themselves (EIO, ESTALE, a time-out), and how long to wait for that."""

import contextlib
import errno
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

DEADLINE = 60.0
"""Seconds: a file server's failover takes less."""
PAUSES = (0.5, 8.0)
"""Seconds between two tries: the first, doubled up to the last."""
REMIND = 30.0
"""Seconds between two lines about one wait."""
LASTING = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EROFS,
        errno.EACCES, errno.EPERM,
        errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG,
    }
)  # fmt: skip
"""Faults that stay until somebody does something."""

T = TypeVar("T")


def passing(error: OSError) -> bool:
    """Whether another try may find it well again."""
    return error.errno is not None and error.errno not in LASTING


def disk_full(error: OSError) -> bool:
    """Whether a disk, or a quota, took no more bytes."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def retry(work: Callable[[], T], report: Callable[[str], None], patience: int = 1) -> T:
    """The result of `work`, called again after a passing OSError for `patience` times `DEADLINE`. Raises what it raises then."""
    deadline = time.monotonic() + patience * DEADLINE
    pause, longest = PAUSES
    while True:
        try:
            return work()
        except OSError as error:
            if not passing(error) or time.monotonic() + pause > deadline:
                raise
            report(f"{error.filename or 'the volume'}: {error.strerror or error}; trying again in {pause:g} s")
        time.sleep(pause)
        pause = min(pause * 2, longest)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError of a read or a write does not say of which file: now it does."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise
