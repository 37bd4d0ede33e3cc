"""Faults of a volume that pass on their own (EIO, ESTALE, a timeout), and how long to wait for
that.
"""

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
REMIND_INTERVAL = 30.0
"""Seconds between two lines about one wait."""
LASTING_ERRORS = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EROFS,
        errno.EACCES, errno.EPERM,
        errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG,
    }
)  # fmt: skip
"""Faults that last until someone fixes them."""

T = TypeVar("T")


def may_pass(error: OSError) -> bool:
    """Whether another try may succeed."""
    return error.errno is not None and error.errno not in LASTING_ERRORS


def disk_full(error: OSError) -> bool:
    """Whether a disk, or a quota, allowed no more bytes."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def retry(work: Callable[[], T], report: Callable[[str], None], patience: int = 1) -> T:
    """Returns the result of `work`, retried on passing OSErrors for `patience` times `DEADLINE`.
    Raises what it raises then.
    """
    deadline = time.monotonic() + patience * DEADLINE
    pause, longest = PAUSES
    while True:
        try:
            return work()
        except OSError as error:
            if not may_pass(error) or time.monotonic() + pause > deadline:
                raise
            report(
                f"{error.filename or 'the volume'}: {error.strerror or error}; trying again in "
                f"{pause:g} s"
            )
        time.sleep(pause)
        pause = min(pause * 2, longest)


@contextlib.contextmanager
def name_path(path: Path) -> Iterator[None]:
    """Adds the file's path to an OSError, which does not have it if a read or a write failed."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise
