"""What lies in a file of the source: itself, or what .gz, .zip, .tar and .tar.gz hold.

Promises: members in the archive's own order, hidden ones left out; a damaged or truncated archive raises a `Failure`
(BAD_DATA), by `damage_of`, instead of passing for a short one.
"""

from __future__ import annotations

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from paddle_node.contract import ExitCode
from paddle_node.failure import Failure
from paddle_node.splitting.kinds import kind
from paddle_node.splitting.source import hidden, inside

BLOCK = 1 << 20


def members(path: Path, name: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of each file inside; the stream is good until the next one is asked for.

    To be used within `damage_of`.
    """
    found = kind(path)
    if found == "zip":
        yield from _zip(path, name)
    elif found in ("tar", "tar.gz"):
        yield from _tar(path, name)
    elif found == "gz":
        with gzip.open(path, "rb") as inflated:
            yield name.removesuffix(".gz"), cast(IO[bytes], inflated)
    else:
        with path.open("rb") as stream:
            yield name, stream


@contextmanager
def damage_of(name: str) -> Iterator[None]:
    """Around everything that reads `members`: damage shows only while they are read."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, tarfile.TarError) as error:
        raise Failure(ExitCode.BAD_DATA, f"{name} is damaged or cut short: {error}") from None


def _zip(path: Path, name: str) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.is_dir() or hidden(member := inside(entry.filename.replace("\\", "/"), name)):
                continue
            if entry.flag_bits & 1:
                raise Failure(ExitCode.BAD_DATA, f"{name} is encrypted: {entry.filename} cannot be read")
            try:
                stream = archive.open(entry)
            except NotImplementedError as error:
                raise Failure(ExitCode.BAD_DATA, f"{name}: {entry.filename} cannot be unpacked: {error}") from None
            with stream:
                yield member, stream


def _tar(path: Path, name: str) -> Iterator[tuple[str, IO[bytes]]]:
    with cast(IO[bytes], gzip.open(path, "rb")) if kind(path) == "tar.gz" else path.open("rb") as raw:
        whole = _Remembered(raw)
        with tarfile.open(fileobj=cast(IO[bytes], whole), mode="r|") as archive:
            for entry in archive:
                if not entry.isfile() or hidden(member := inside(entry.name, name)):
                    continue  # Folders, and links that may lead anywhere.
                stream = archive.extractfile(entry)
                if stream is None:
                    continue
                with stream:
                    yield member, stream
        # tarfile takes the end of the file between two members for the end of the archive, which blocks of zeros mark.
        while whole.read(BLOCK):
            pass
        if whole.last.strip(b"\0"):
            raise tarfile.ReadError("the mark at its end is missing")


class _Remembered:
    """A stream that knows the last bytes read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.last = b""

    def read(self, amount: int) -> bytes:
        block = self._stream.read(amount)
        self.last = (self.last + block)[-tarfile.BLOCKSIZE :]
        return block
