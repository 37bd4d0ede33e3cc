"""One file of a shard in the making.

Promises: it appears under its name only when it is whole and on the disk (temporary file, fsync, rename); its
checksum is that of the bytes written, counted while they pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import xxhash

from paddle_node import data_manifest
from paddle_node.contract import ExitCode
from paddle_node.data_manifest import DataFile
from paddle_node.failure import Failure
from paddle_node.splitting import newlines
from paddle_node.splitting.framing import Framing

BLOCK = 1 << 20
BEHIND = 8 << 20
"""Bytes after which the kernel is told to begin to write: the fsync at the end then has little left to wait for."""


class PartFile:
    """Open from `with` to its end; `done` afterwards says what the manifest says."""

    def __init__(self, path: Path, temporary: Path, framing: Framing, advance: Callable[[int], None]) -> None:
        self._path = path
        self._temporary = temporary
        self._framing = framing
        self._advance = advance
        self._hash = xxhash.xxh3_128()
        self._bytes = 0
        self._handed_on = 0
        self._records = 0

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                os.fsync(self._file)
        finally:
            os.close(self._file)
            if kind is not None:
                self._temporary.unlink(missing_ok=True)
        if kind is None:
            self._temporary.replace(self._path)

    def records(self, records: Sequence[bytes]) -> None:
        """Appends whole records."""
        if records:
            self._write(memoryview(self._framing.final(records)))
            self._records += len(records)

    def lines(self, content: bytes, records: int) -> None:
        """Appends whole lines."""
        self._write(memoryview(content))
        self._records += records

    def copy(self, source: Path, start: int, end: int, records: int) -> None:
        """Appends `records` lines that lie in `source` from `start` to `end`; the last one gets its newline if it lacks it."""
        if self._copy(source, start, end) != b"\n":
            self._write(memoryview(b"\n"))
        self._records += records

    def count(self, source: Path, start: int, end: int, newline: Callable[[newlines.Block, int], int]) -> None:
        """As `copy`, for lines that nobody has counted yet."""
        found = 0

        def look(buffer: bytearray, filled: int) -> None:
            nonlocal found
            found += newline(buffer, filled)

        if self._copy(source, start, end, look) != b"\n":
            self._write(memoryview(b"\n"))
            found += 1
        self._records += found

    def copy_whole(self, source: Path) -> None:
        """Appends all of `source` as one record."""
        self._copy(source, 0, source.stat().st_size)
        self._records += 1

    def _copy(self, source: Path, start: int, end: int, look: Callable[[bytearray, int], None] | None = None) -> bytes:
        """Appends bytes; returns the last one. `look` sees each block on its way."""
        buffer = bytearray(min(BLOCK, max(1, end - start)))
        view = memoryview(buffer)
        last = b"\n"
        with source.open("rb", buffering=0) as stream:
            stream.seek(start)
            left = end - start
            while left > 0:
                filled = stream.readinto(view[: min(len(buffer), left)])
                if not filled:
                    raise Failure(ExitCode.BAD_DATA, f"{source} became shorter while it was read: run the split again")
                self._write(view[:filled])
                if look:
                    look(buffer, filled)
                last = bytes(buffer[filled - 1 : filled])
                left -= filled
        return last

    def done(self, name: str) -> DataFile:
        """What the manifest says of this file."""
        return DataFile(name, self._records, self._bytes, f"{data_manifest.CHECKSUM}:{self._hash.hexdigest()}")

    def _write(self, content: memoryview) -> None:
        self._hash.update(content)
        self._bytes += len(content)
        self._advance(len(content))
        while len(content) > 0:
            content = content[os.write(self._file, content) :]
        if self._bytes - self._handed_on >= BEHIND:
            # What the advice does on Linux: begin to write, without waiting; what is not yet written stays in memory.
            os.posix_fadvise(self._file, self._handed_on, self._bytes - self._handed_on, os.POSIX_FADV_DONTNEED)
            self._handed_on = self._bytes
