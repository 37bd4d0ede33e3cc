"""What lies below a folder."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path


def files_below(folder: Path, left_out: Callable[[str], bool]) -> Iterator[Path]:
    """Yields everything below a folder except folders; follows links. Raises OSError, with errno
    ELOOP for a circular link.
    """
    for root, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        here = Path(root)
        folders[:] = [name for name in folders if not left_out(name)]
        for path in (here / name for name in folders):
            if path.is_symlink() and any(path.samefile(above) for above in (here, *here.parents)):
                raise OSError(errno.ELOOP, "a link to a folder in which it lies", str(path))
        yield from (here / name for name in names if not left_out(name))


def _raise(error: OSError) -> None:
    raise error
