"""Sources in the container's own file tree: a file, a folder with all below it, or a glob pattern."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from paddle_node import contract
from paddle_node.contract import Variable
from paddle_node.failure import SettingError
from paddle_node.splitting.source import Object


class LocalSource:
    """Read in place: nothing is copied before the split itself."""

    def __init__(self, uri: str, environ: Mapping[str, str]) -> None:
        self._uri = uri
        self._root = contract.path("/", dict(environ))
        self._base = self._path = contract.path(uri, dict(environ))

    def objects(self) -> tuple[Object, ...]:
        """Raises `SettingError` when nothing is there, or some of it cannot be read."""
        try:
            found, self._base = self._found()
        except PermissionError as error:
            raise SettingError(
                f"{Variable.DATA_SOURCE} is {self._uri!r}, but uid {os.getuid()} may not look into {error.filename}"
            ) from None
        if not found:
            what = "is an empty folder" if self._path.is_dir() else "is no file, no folder, and no pattern that matches one"
            raise SettingError(f"{Variable.DATA_SOURCE} is {self._uri!r}, which {what} in this container")
        return tuple(sorted(map(self._object, found), key=lambda thing: thing.name))

    def _found(self) -> tuple[list[str], Path]:
        """The files, and the folder to which their names are relative."""
        if self._path.is_file():
            return [str(self._path)], self._path.parent
        if self._path.is_dir():
            return list(_below(self._path)), self._path
        try:
            paths = [path for path in self._root.glob(self._uri.lstrip("/")) if path.is_file() and not path.name.startswith(".")]
        except ValueError as error:
            raise SettingError(f"{Variable.DATA_SOURCE} is {self._uri!r}, which is no pattern: {error}") from None
        found = [str(path) for path in paths]
        return found, Path(os.path.commonpath([path.parent for path in paths])) if found else self._path

    def _object(self, path: str) -> Object:
        if not os.access(path, os.R_OK):
            raise SettingError(f"{Variable.DATA_SOURCE} is {self._uri!r}, but uid {os.getuid()} may not read {path}")
        name = Path(path).relative_to(self._base).as_posix()
        return Object(name, *_mark(Path(path)), name)

    def local(self, thing: Object) -> Path | None:
        return self._base / thing.address

    def unchanged(self, thing: Object) -> bool:
        try:
            return _mark(self._base / thing.address) == (thing.size, thing.etag)
        except OSError:
            return False

    def download(self, thing: Object, to: Path, advance: Callable[[int], None]) -> None:
        raise NotImplementedError("local files are read in place")


def _below(folder: Path) -> Iterator[str]:
    """Regular files, hidden ones left out: .DS_Store and the like are no data. Links are followed, but never in circles.

    Raises `SettingError` for a link that leads nowhere, and PermissionError: what cannot be read is not passed over.
    """
    for root, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        here = Path(root)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in folders:
            path = here / name
            if path.is_symlink() and any(path.samefile(above) for above in (here, *here.parents)):
                raise SettingError(f"{Variable.DATA_SOURCE} holds {path}, a link to a folder in which it lies")
        for name in names:
            path = here / name
            if name.startswith("."):
                continue
            if path.is_file():
                yield str(path)
            elif path.is_symlink() and not path.exists():
                raise SettingError(f"{Variable.DATA_SOURCE} holds {path}, a link that leads nowhere")


def _raise(error: OSError) -> None:
    raise error


def _mark(path: Path) -> tuple[int, str]:
    """Its size, and what changes with its content."""
    status = path.stat()
    return status.st_size, f"mtime-{status.st_mtime_ns}"
