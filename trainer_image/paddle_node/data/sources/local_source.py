"""Sources in the container's own file system: a file, a folder with everything below it, or a glob
pattern.
"""

import errno
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from paddle_node import contract
from paddle_node.contract import Variable
from paddle_node.data.sources.source import BUFFER, Object, Source, refuse_changed
from paddle_node.failure import BadSetting
from paddle_node.folders import files_below
from paddle_node.volume import durable


class LocalSource(Source):
    """Files of the container, read in place."""

    def __init__(self, uri: str, environ: Mapping[str, str]) -> None:
        super().__init__(uri)
        self._root = contract.path("/", environ)
        self._base = self._path = contract.path(uri, environ)

    def objects(self) -> list[Object]:
        try:
            objects = self._find_files()
        except PermissionError as error:
            self.refuse(f", but uid {os.getuid()} may not look into {error.filename}")
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise BadSetting(
                f"{Variable.DATA_SOURCE} holds {error.filename}, {error.strerror}"
            ) from None
        if not objects:
            what = "not a file, a folder, or a pattern that matches one"
            if self._path.is_dir():
                what = "an empty folder"
            self.refuse(f", which is {what} in this container")
        return sorted(map(self._object, objects), key=lambda thing: thing.name)

    def refuse(self, why: str) -> NoReturn:
        raise BadSetting(f"{Variable.DATA_SOURCE} is {self.uri!r}{why}") from None

    def open(self, thing: Object, begin: int = 0) -> BinaryIO:
        raw = _File(self.path(thing), thing)
        raw.seek(begin)
        return io.BufferedReader(raw, BUFFER)

    def path(self, thing: Object) -> Path:
        return self._base / thing.address

    def _find_files(self) -> list[Path]:
        if self._path.is_file():
            self._base = self._path.parent
            return [self._path]
        if self._path.is_dir():
            return list(files_below(self._path, lambda name: name.startswith(".")))
        paths = [
            path
            for path in durable.glob(self._root, self.uri.lstrip("/"))
            if path.is_file() and not path.name.startswith(".")
        ]
        if paths:
            self._base = Path(os.path.commonpath([path.parent for path in paths]))
        return paths

    def _object(self, path: Path) -> Object:
        if not path.is_file():
            lost = path.is_symlink()
            what = "a link that leads nowhere" if lost else "which is not a file (any more)"
            raise BadSetting(f"{Variable.DATA_SOURCE} holds {path}, {what}")
        if not os.access(path, os.R_OK):
            self.refuse(f", but uid {os.getuid()} may not read {path}")
        name = path.relative_to(self._base).as_posix()
        return Object(name, *_mark(path.stat()), name)


class _File(io.FileIO):
    """Compares the file with its listing on opening, at its end and on closing."""

    def __init__(self, path: Path, thing: Object) -> None:
        self._thing = thing
        try:
            super().__init__(path)
        except FileNotFoundError:
            refuse_changed(thing.name)
        self._compare()

    def readinto(self, buffer: Any, /) -> int | None:
        count = super().readinto(buffer)
        if not count:
            self._compare()
        return count

    def close(self) -> None:
        try:
            if not self.closed:
                self._compare()
        finally:
            super().close()

    def _compare(self) -> None:
        if _mark(os.fstat(self.fileno())) != (self._thing.size, self._thing.mark):
            refuse_changed(self._thing.name)


def _mark(status: os.stat_result) -> tuple[int, str]:
    return status.st_size, f"mtime-{status.st_mtime_ns}"
