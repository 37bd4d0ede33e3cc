"""A small file on the volume that a reader sees whole or not at all, even after a loss of power.

On NFS a client may answer from memory for up to a minute that a name is not there, where a link leads, or how long a file is: a
caller that must know asks for a `look` at the folder first, and for the `stat` of an open file.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def write(path: Path, content: str | bytes) -> None:
    """Temporary file, fsync, rename, fsync of the folder, which is made if missing. Raises OSError (a full volume, for one)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _draft(path, content) as draft:
        draft.replace(path)
    sync(path.parent)


def create(path: Path, content: str | bytes, mode: int = 0o666) -> bool:
    """Makes the file where there is none; False where there is one, which is left as it is. Its folder must be there."""
    with _draft(path, content, mode) as draft:
        mine = draft.stat().st_ino
        try:
            os.link(draft, path)
        except FileExistsError:
            # An NFS server whose answer got lost is asked again, and then finds the name that it has made itself.
            look(path.parent)
            if not path.exists() or path.stat().st_ino != mine:
                return False
    sync(path.parent)
    return True


def link(path: Path, target: str) -> None:
    """Makes `path` a symbolic link to `target`, at once where it was another one. Raises OSError where it is a folder."""
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
    # Not by process number: pods that share a volume have equal ones.
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")


def look(folder: Path) -> None:
    """Makes an NFS client ask what is in the folder now: to open it is enough, and costs one request."""
    try:
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
    except FileNotFoundError:
        if folder != folder.parent:
            look(folder.parent)
    except OSError:
        pass  # A read there will say so.


def stat(path: Path) -> os.stat_result:
    """Of a file, or folder, as an NFS server knows it: its client asks when it is opened. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # A named pipe would wait for its writer.
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """To the volume, not only to this machine's memory: a file, or a folder, whose names are bytes like others."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
