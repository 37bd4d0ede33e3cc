"""Small files on the volume that a reader sees whole or not at all, even after a power failure.

An NFS client may answer from its cache for up to a minute that a name does not exist, where a link
leads, or how long a file is: a caller that must know takes a `look` at the folder first, and the
`stat` of an open file.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def write(path: Path, content: str | bytes) -> None:
    """Writes by temporary file, fsync, rename, fsync of the folder, made if missing. Raises OSError
    (a full volume, for one).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _draft(path, content) as draft:
        draft.replace(path)
    sync(path.parent)


def create(path: Path, content: str | bytes, mode: int = 0o666) -> bool:
    """Creates the file. Returns False if it exists, and leaves it as it is. Its folder must
    exist.
    """
    with _draft(path, content, mode) as draft:
        mine = draft.stat().st_ino
        try:
            os.link(draft, path)
        except FileExistsError:
            # If an NFS server's answer got lost, the client asks again, and the server finds the
            # name that it made itself.
            look(path.parent)
            if not path.exists() or path.stat().st_ino != mine:
                return False
    sync(path.parent)
    return True


def link(path: Path, target: str) -> None:
    """Makes `path` a symbolic link to `target`, atomically if it was another link. Raises OSError
    if it is a folder.
    """
    look(path.parent)
    if path.is_symlink() and str(path.readlink()) == target:
        return
    temporary = _temporary(path)
    temporary.symlink_to(target)
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


@contextlib.contextmanager
def _draft(path: Path, content: str | bytes, mode: int = 0o666) -> Iterator[Path]:
    draft = _temporary(path)
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:  # noqa: PTH123
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    # Not the process id: pods that share a volume may have the same.
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")


def look(folder: Path) -> None:
    """Makes an NFS client ask for the folder's current content: opening the folder is enough, and
    costs one request.
    """
    try:
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
    except FileNotFoundError:
        if folder != folder.parent:
            look(folder.parent)
    except OSError:
        pass  # A read there will say so.


def stat(path: Path) -> os.stat_result:
    """Status of a file or folder as the NFS server has it: opening makes the client ask. Raises
    OSError.
    """
    descriptor = os.open(
        path, os.O_RDONLY | os.O_NONBLOCK
    )  # A named pipe would wait for its writer.
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Flushes a file, or the names in a folder, from this machine's memory to the volume."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
