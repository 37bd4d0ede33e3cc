"""Small files on the volume that a reader sees whole or not at all, even after a power failure.

For up to a minute, an NFS client may answer from its cache that a name does not exist, where a link
leads, or how long a file is. A caller that needs the present state calls `refresh` on the folder
first, and `stat` on an open file.

Every listing of the volume goes through `entries`: a folder that may not be listed is an error, not
an empty folder.
"""

import contextlib
import errno
import fcntl
import fnmatch
import os
import re
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from stat import S_ISREG

from paddle_node.retry import name_path

LINK_NAME = 200
"""Bytes of a link's name that its temporary one has: no name has more than 255."""


class Writer(contextlib.AbstractContextManager["Writer"]):
    """Writes a file past this machine's memory where the file system allows it, as NFS does.

    A process cannot discard data that waits in memory for a server. If the server does not answer,
    no signal ends the process before the server is back.
    """

    def __init__(self, path: Path, flags: int, mode: int = 0o666) -> None:
        """`flags` as for os.open, to which O_WRONLY is added. Raises OSError."""
        self._file = os.open(path, flags | os.O_WRONLY, mode)
        self._flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
        os.lseek(self._file, 0, os.SEEK_END)
        with contextlib.suppress(OSError):
            # NFS appends through memory alone; every file has a single writer.
            direct = self._flags & ~os.O_APPEND | os.O_DIRECT
            fcntl.fcntl(self._file, fcntl.F_SETFL, direct)

    def write(self, content: bytes) -> None:
        """Raises OSError."""
        left = memoryview(content)
        while left:
            try:
                left = left[os.write(self._file, left) :]
            except OSError as error:
                # Disks take whole sectors alone: through memory, then.
                flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
                if error.errno != errno.EINVAL or not flags & os.O_DIRECT:
                    raise
                fcntl.fcntl(self._file, fcntl.F_SETFL, self._flags)

    def sync(self) -> None:
        """Flushes what was written to the disk. Raises OSError."""
        os.fsync(self._file)

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def write(path: Path, content: str | bytes, check: Callable[[], object] = lambda: None) -> None:
    """Writes by temporary file, fsync, rename, fsync of the folder, made if missing. Raises OSError
    (a full volume, for one).

    `check` is called between the temporary file and its rename, and raises if the file is no longer
    this writer's: a successor that calls `discard_drafts` then need not fear a rename that comes
    late.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _draft(path, content) as draft:
        check()
        draft.replace(path)
    sync(path.parent)


def discard_drafts(path: Path) -> None:
    """Removes what others were about to rename to `path`: their renames fail. Raises OSError."""
    for draft in glob(path.parent, f".{path.name}.*.tmp"):
        draft.unlink(missing_ok=True)


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
            refresh(path.parent)
            if not path.exists() or path.stat().st_ino != mine:
                return False
    sync(path.parent)
    return True


def link(path: Path, target: str) -> None:
    """Makes `path` a symbolic link to `target`, atomically if it was another link. Raises OSError
    if it is a folder.
    """
    refresh(path.parent)
    # What a writer left that was killed here goes with the next one.
    name = os.fsdecode(os.fsencode(path.name)[:LINK_NAME])
    temporary = path.with_name(f".{name}.link.tmp")
    for tries_left in reversed(range(100)):
        try:
            if path.is_symlink() and str(path.readlink()) == target:
                return
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(target)
            temporary.replace(path)
            sync(path.parent)
            return
        except (FileExistsError, FileNotFoundError):
            # Another pod links the same name: it moved the temporary link, or made its own.
            if not tries_left:
                raise
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _draft(path: Path, content: str | bytes, mode: int = 0o666) -> Iterator[Path]:
    # Not the process id: pods that share a volume may have the same.
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        with Writer(draft, os.O_CREAT | os.O_EXCL, mode) as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.sync()
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def refresh(folder: Path) -> None:
    """Makes an NFS client ask for the folder's current content: opening the folder is enough, and
    costs one request.
    """
    try:
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
    except FileNotFoundError:
        if folder != folder.parent:
            refresh(folder.parent)
    except OSError:
        pass  # A read there will say so.


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """Returns what lies in a folder, by name; nothing if there is no such folder. Raises OSError,
    with the folder's path, if it cannot be listed.
    """
    try:
        with name_path(folder), os.scandir(folder) as listing:
            return sorted(listing, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if error.errno == errno.ELOOP:  # A link to itself.
            return []
        raise


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Returns whether an entry is a folder or leads to one. Raises OSError."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # A link to itself.
            return False
        raise


def glob(folder: Path, pattern: str) -> list[Path]:
    """Returns what matches a pattern below a folder. Unlike `Path.glob`, it does not treat a folder
    that may not be listed as empty. Raises OSError.
    """
    return [folder / name for name in names(folder, pattern)]


def names(folder: Path, pattern: str) -> list[str]:
    """Returns what `glob` does, as names relative to the folder."""
    first, _, rest = pattern.partition("/")
    if first == "**":
        real = [path for path in walk(folder) if path.is_dir() and not path.is_symlink()]
        inside = ["", *(path.relative_to(folder).as_posix() for path in real)]
        return sorted(set(_below(folder, inside, rest) if rest else filter(None, inside)))
    if not re.search(r"[*?\[]", first):
        try:
            (folder / first).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return []
        return _below(folder, [first], rest) if rest else [first]
    fits = re.compile(fnmatch.translate(first)).match
    matches = [entry for entry in entries(folder) if fits(entry.name)]
    if not rest:
        return [entry.name for entry in matches]
    return _below(folder, [entry.name for entry in matches if is_folder(entry)], rest)


def _below(folder: Path, inside: list[str], pattern: str) -> list[str]:
    return [
        f"{name}/{match}" if name else match
        for name in inside
        for match in names(folder / name, pattern)
    ]


def walk(folder: Path) -> Iterator[Path]:
    """Yields everything below a folder, each folder before what lies in it; does not follow links.
    Raises OSError.
    """
    # No recursion: a program that went wrong may have made a thousand folders in each other.
    listings = [(folder, iter(entries(folder)))]
    while listings:
        place, listing = listings[-1]
        if (entry := next(listing, None)) is None:
            listings.pop()
            continue
        path = place / entry.name
        yield path
        if entry.is_dir(follow_symlinks=False):
            listings.append((path, iter(entries(path))))


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


def open_file(file: Path) -> BufferedReader | None:
    """Opens a file; returns None for a folder, a link, a pipe, on which this process would wait.
    Raises OSError.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # A link, a socket.
            return None
        raise
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def sync(path: Path) -> None:
    """Flushes a file, or the names in a folder, from this machine's memory to the volume."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
