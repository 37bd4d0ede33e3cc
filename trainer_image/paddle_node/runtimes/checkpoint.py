"""Whether a checkpoint of a training stack is whole, by its files and their ends.

A process that dies while it saves leaves files out, or one cut off. Nothing is loaded or run: of
each kind of file the structure is read, not the content, so that a check of gigabytes takes
milliseconds.
"""

import errno
import fnmatch
import itertools
import json
import os
import pickletools
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from paddle_node.volume import durable

RANK, STEM = "{rank}", "{stem}"
SKIPPED_BYTES = 1 << 16
"""Bytes of one value in a pickle from which it is skipped instead of read."""
OPCODES = 1_000_000
"""Operations of a pickle after which only its last byte counts."""
JSON_LIMIT = 64 << 20
"""Bytes of JSON that are read."""
_NEVER_EMPTY = (".json", ".safetensors", ".pdparams", ".pdopt", ".pt", ".pth", ".bin")
_Stamp = tuple[tuple[str, int, int], ...]
_NO_SUCH_FILE = (
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)
"""The errors of reading a file of another kind: anything may be on the volume."""


@dataclass
class CheckpointCheck:
    """Says what is missing in a stack's checkpoints, and reads each file once while it stays the
    same.
    """

    files: Sequence[str]
    """What a whole one has, by names or globs: in its folder, or beside its file, with {stem};
    {rank}: one for each rank; `a | b`: one of the two.
    """
    last: str
    """The one that is written last; empty: unknown."""
    ranks: int
    """Ranks whose files have to be there; 0: those of none are asked for."""
    _seen: dict[Path, tuple[_Stamp, str]] = field(default_factory=dict)

    def fault(self, path: Path) -> str:
        """Returns why a checkpoint, a folder or a file, is not whole; empty: it is. Raises OSError
        for a refusal.
        """
        stamp = tuple(_stamps(path, members(path)))
        seen = self._seen.get(path)
        if seen is None or seen[0] != stamp:
            try:
                fault = self._fault(path, stamp)
            except FileNotFoundError as error:
                fault = f"{Path(str(error.filename)).name} is gone"
            seen = self._seen[path] = (stamp, fault)
        return seen[1]

    def _fault(self, path: Path, stamp: _Stamp) -> str:
        states = {name: (size, changed) for name, size, changed in stamp}
        if fault := self.find_missing(states, "" if path.is_dir() else path.stem):
            return fault
        folder = path if path.is_dir() else path.parent
        for name in states:
            if fault := file_fault(folder / name):
                return f"{name} {fault}"
        return ""

    def find_missing(self, states: Mapping[str, tuple[int, int]], stem: str) -> str:
        """Returns which of a checkpoint's files is not among these, with their sizes and times, or
        was written too late; `stem`: of its file, empty for a folder.
        """
        beside: list[str] = []
        for pattern in self.files:
            many = range(self.ranks) if RANK in pattern else (0,)
            for rank in many:
                name = pattern.replace(STEM, stem or STEM).replace(RANK, str(rank))
                fits = [fnmatch.filter(states, choice.strip()) for choice in name.split("|")]
                matches = [match for choice in fits for match in choice]
                if not any(states[match][0] for match in matches):
                    return f"{name} is {'empty' if matches else 'missing'}"
                if RANK not in pattern:
                    beside += matches
        if last := self.last.replace(STEM, stem or STEM):
            written = max(states[name][1] for name in fnmatch.filter(states, last))
            newer = [name for name in beside if states[name][1] > written]
            if newer:
                return f"{newer[0]} is newer than {last}, which is written last"
        return ""


def members(path: Path) -> list[Path]:
    """Returns the files of a checkpoint: those in its folder, or those with its file's name but for
    the last suffix.
    """
    if path.is_dir():
        return [file for file in durable.walk(path) if file.is_file()]
    return [
        path.parent / entry.name
        for entry in durable.entries(path.parent)
        if PurePosixPath(entry.name).stem == path.stem and entry.is_file()
    ]


def file_fault(path: Path) -> str:
    """Returns how a file is damaged, such as "is cut off"; empty: it is not."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return "is empty" if path.suffix in _NEVER_EMPTY else ""
        try:
            if (check := _find_check(path, file, size)) is not None and not check(file, size):
                return "is cut off"
        except _NO_SUCH_FILE:
            return "is cut off"
    if path.name.endswith(".index.json"):
        return _index_fault(path)
    return ""


def shows_its_end(path: Path) -> bool:
    """Whether `file_fault` can tell that the file was cut off."""
    with path.open("rb") as file:
        return _find_check(path, file, os.fstat(file.fileno()).st_size) is not None


def _find_check(path: Path, file: Any, size: int) -> Callable[[Any, int], bool] | None:
    head = file.read(4)
    file.seek(0)
    if path.suffix == ".safetensors":
        return _is_safetensors
    if path.suffix == ".json" and size <= JSON_LIMIT:
        return _is_json
    if head == b"PK\3\4":
        return _is_zip
    if head[:1] == b"\x80" and 2 <= head[1] <= 5:
        return _is_pickle
    return None


def _index_fault(path: Path) -> str:
    """Returns which of the files that an index of shards names is missing."""
    index = json.loads(path.read_text())
    shards = index.get("weight_map", {}) if isinstance(index, dict) else {}
    if not isinstance(shards, dict):
        return ""
    missing = sorted({name for name in map(str, shards.values()) if not _is_beside(path, name)})
    return f"names {missing[0]}, which is missing" if missing else ""


def _is_beside(path: Path, name: str) -> bool:
    try:
        return (path.parent / name).is_file()
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return False


def _is_json(file: Any, size: int) -> bool:
    json.loads(file.read())
    return True


def _is_safetensors(file: Any, size: int) -> bool:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > size:
        return False
    header = json.loads(file.read(length))
    ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    return bool(8 + length + max(ends, default=0) == size)


def _is_zip(file: Any, size: int) -> bool:
    return zipfile.is_zipfile(file)


def _is_pickle(file: Any, size: int) -> bool:
    skipping: Any = _SkippingFile(file, size)
    operations = pickletools.genops(skipping)
    try:
        for operation, _, _ in itertools.islice(operations, OPCODES):
            if operation.name == "STOP":
                return True
    except TypeError:  # A text was skipped.
        pass
    file.seek(size - 1)
    return bool(file.read() == b".")


class _SkippedBytes:
    """Stands for bytes that were skipped."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length


class _SkippingFile:
    """A file that skips long values instead of reading them."""

    def __init__(self, file: Any, size: int) -> None:
        self._file, self._size = file, size
        self.readline, self.tell = file.readline, file.tell

    def read(self, count: int = -1) -> Any:
        if count < SKIPPED_BYTES:
            return self._file.read(count)
        begin = self._file.tell()
        if count > self._size - begin:
            raise EOFError
        self._file.seek(count, os.SEEK_CUR)
        return _SkippedBytes(count)


def _stamps(path: Path, files: Sequence[Path]) -> Iterator[tuple[str, int, int]]:
    folder = path if path.is_dir() else path.parent
    for file in files:
        try:
            state = durable.stat(file)
        except FileNotFoundError:  # Just removed.
            continue
        yield file.relative_to(folder).as_posix(), state.st_size, state.st_mtime_ns
