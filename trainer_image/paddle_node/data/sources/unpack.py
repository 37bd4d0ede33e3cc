"""The files in an object of the source: the object itself, or one layer of .gz, .zip, .tar or
.tar.gz, recognized by content.

Anything damaged, cut short or not exactly readable raises `BadData`, even after the last member. A
flipped bit in a plain file, or in the body of a tar member, goes undetected: a tar has checksums of
its headers only (`tar`).
"""

import contextlib
import io
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from paddle_node.data.sources import tar
from paddle_node.data.sources.source import BUFFER, Object, Source, is_hidden, require_relative
from paddle_node.failure import BadData, Failure
from paddle_node.retry import name_path

BLOCK = 1 << 20
_ZIP_END, _ZIP64_END = 22, 76
"""Bytes of the records after a zip's directory; only large zips have the second."""
_ZIP_FLAGS, _ZIP_UTF_8 = 6, 0x800
"""Where a member's own header has its flags, and the one that says how its name is written."""
_PACKED = re.compile(
    rb"BZh[1-9]1AY&SY|\xfd7zXZ\0|\x28\xb5\x2f\xfd|\x1f\x8b|PK\x03\x04|.{257}ustar", re.DOTALL
)
"""How bzip2, xz, zstd, gzip, zip and tar begin."""


def members(source: Source, thing: Object, format: str) -> Iterator[tuple[str, BinaryIO]]:
    """Yields the name and content of each file in the object. A content can be read until the next
    one is requested.

    `files` leaves a .gz of a single file packed. `lines` refuses content that is still packed.
    `shared` unpacks like `lines`, but refuses nothing. Raises `BadData` for any damage, even in
    unread content.
    """
    with source.open(thing) as raw:
        kind = _kind(raw, thing.name, format)
        unpacked: Any = io.BufferedReader(_Gzip(raw), BUFFER) if kind.endswith("gz") else raw
        if kind == "zip":
            files = _zip(raw, thing.name)
        elif kind.startswith("tar"):
            files = _tar(unpacked, thing.name)
        else:
            files = iter(
                [(thing.name.removesuffix(".gz") if kind == "gz" else thing.name, unpacked)]
            )
        while True:
            with _damage_of(thing.name):
                member = next(files, None)
            if member is None:
                return
            content = _Content(member[1], thing.name)
            stream = io.BufferedReader(content, BUFFER)
            if format == "lines":
                _refuse_packed(stream, member[0])
            yield member[0], stream
            content.check(unread=kind != "plain")


def is_cuttable(source: Source, thing: Object) -> bool:
    """Returns whether the object's lines can be read from any offset. Raises `BadData` if it is
    packed in an unknown way.
    """
    if not source.ranges or not thing.mark or thing.size is None:
        return False
    with source.open(thing) as raw:
        if _kind(raw, thing.name, "lines") != "plain":
            return False
        _refuse_packed(raw, thing.name)
    return True


def _kind(raw: BinaryIO, name: str, format: str) -> str:
    head = cast(io.BufferedReader, raw).peek()
    called = re.search(r"\.(tar|tgz|tar\.gz|zip|gz)$", name.lower())
    tarred = called and called[1] in ("tar", "tgz", "tar.gz")
    kind = "plain"
    if head.startswith(b"\x1f\x8b"):
        kind = "gz"
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, tarfile.BLOCKSIZE)
        except zlib.error:
            head = b""  # Reading will report the damage.
    if _begins_tar(head) or (tarred and head and not head.strip(b"\0")):
        kind = "tar.gz" if kind == "gz" else "tar"
    elif kind == "plain" and head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        kind = "zip"
    if (called and kind == "plain" and (called[1] != "gz" or format != "files")) or (
        tarred and kind == "gz"
    ):
        raise BadData(f"{name} does not begin as its name says: it is damaged, or named wrongly")
    return "plain" if kind == "gz" and format == "files" else kind


def _begins_tar(head: bytes) -> bool:
    """Recognizes POSIX and GNU tars by their magic, and Unix v7 tars by the first header's
    checksum.
    """
    if head[257:262] == b"ustar":
        return True
    try:
        return bool(
            tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape").name
        )
    except tarfile.HeaderError:
        return False


def _refuse_packed(stream: BinaryIO, name: str) -> None:
    if _PACKED.match(cast(io.BufferedReader, stream).peek()):
        raise BadData(
            f"{name} is compressed: one layer of .gz, .zip, .tar or .tar.gz is unpacked, no other"
        )


class _Gzip(io.RawIOBase):
    """What a .gz holds, member after member. Python's gzip skips zeros behind a member, and with
    them a member that was zeroed.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._member = zlib.decompressobj(wbits=31)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while True:
            member = self._member
            packed = member.unused_data if member.eof else member.unconsumed_tail
            packed = packed or self._raw.read(BUFFER)
            if member.eof:
                if not packed:
                    return 0
                member = self._member = zlib.decompressobj(wbits=31)
            block = member.decompress(packed, len(buffer))
            if block:
                buffer[: len(block)] = block
                return len(block)
            if not packed and not member.eof:
                raise EOFError("it ends within a member")


class _Content(io.RawIOBase):
    """A member's bytes. `check` raises the last failure again, in case the reader swallowed it."""

    def __init__(self, inner: Any, name: str) -> None:
        self._inner = inner
        self._name = name
        self._failure: BaseException | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if self.closed:
            raise ValueError(
                f"a member of {self._name} can be read until the next one is requested"
            )
        block = self._read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def check(self, unread: bool) -> None:
        if self._failure:
            raise self._failure
        while unread and self._read(BLOCK):
            pass
        self.close()

    def _read(self, amount: int) -> bytes:
        try:
            with _damage_of(self._name):
                return bytes(self._inner.read(amount))
        except BaseException as error:
            self._failure = error
            raise


@contextlib.contextmanager
def _damage_of(name: str) -> Iterator[None]:
    """Raises `BadData` for damage, which these libraries report in a dozen ways. Wraps unpacking
    only.
    """
    try:
        yield
    except Failure:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            # The disk's error, not the archive's: bz2 and gzip raise OSError without an errno.
            raise
        errors = (
            "".join(letter if letter.isprintable() else "?" for letter in str(error))
            or type(error).__name__
        )
        raise BadData(f"{name} is damaged or cut short: {errors}") from None


def _zip(raw: BinaryIO, name: str) -> Iterator[tuple[str, Any]]:
    """Yields a zip's files. Reads the directory, at its end, by ranges or, without ranges, from a
    copy on the pod's scratch.
    """
    if not raw.seekable():
        with tempfile.TemporaryFile() as copy:
            with name_path(Path(tempfile.gettempdir())):
                shutil.copyfileobj(raw, copy, BLOCK)
            yield from _zip(cast(BinaryIO, copy), name)
        return
    with zipfile.ZipFile(raw) as archive:
        entries = archive.infolist()
        # zipfile ignores the number of entries, and members that lie before those of the last
        # directory.
        if len(entries) != _entries(raw, len(archive.comment)) or min(
            (entry.header_offset for entry in entries), default=0
        ):
            raise zipfile.BadZipFile("its directory does not list what it holds")
        for entry in entries:
            written = entry.filename
            if not entry.flag_bits & _ZIP_UTF_8 and written == entry.orig_filename:
                # zipfile takes the bytes for a PC's of 1981; macOS writes UTF-8 without the flag.
                written = written.encode("cp437").decode(errors="surrogateescape")
            member = require_relative(written.replace("\\", "/"), name)
            if entry.flag_bits & 1:
                _refuse(name, member, "which is encrypted")
            if stat.S_ISLNK(entry.external_attr >> 16):
                _refuse(name, member, "a link: pack what it leads to instead")
            try:
                # Compares the directory with the member's own header, even for members left out.
                stream = archive.open(entry)
            except NotImplementedError as error:
                _refuse(name, member, f"which cannot be unpacked: {error}")
            raw.seek(entry.header_offset + _ZIP_FLAGS)
            if (int.from_bytes(raw.read(2), "little") ^ entry.flag_bits) & _ZIP_UTF_8:
                raise zipfile.BadZipFile("its directory and a header name a file differently")
            with stream:
                if entry.is_dir() and entry.file_size:
                    raise zipfile.BadZipFile("a folder has content")
                if not entry.is_dir() and not is_hidden(member):
                    yield member, stream


def _entries(raw: BinaryIO, comment: int) -> int:
    """Returns the directory's own entry count, or -1 if the directory is not at the very end of the
    archive.
    """
    end = raw.seek(0, io.SEEK_END) - comment
    raw.seek(max(0, end - _ZIP64_END - _ZIP_END))
    record = raw.read(min(end, _ZIP64_END + _ZIP_END))
    if record[-_ZIP_END : -_ZIP_END + 4] != b"PK\x05\x06":
        return -1
    if record.startswith(b"PK\x06\x06"):
        return int.from_bytes(record[32:40], "little")
    return int.from_bytes(record[-12:-10], "little")


def _tar(raw: BinaryIO, name: str) -> Iterator[tuple[str, Any]]:
    for entry in tar.members(raw):
        header = entry.header
        if header.isdir() or header.type == b"V":  # V: the archive's label.
            continue
        member = require_relative(entry.name, name)
        if header.issym() or header.islnk():
            if not is_hidden(member):
                _refuse(name, member, "a link: pack it with tar --dereference --hard-dereference")
        elif not header.isreg() or entry.sparse:
            _refuse(
                name,
                member,
                f"a device, a sparse file or another special file (type {header.type!r})",
            )
        elif not is_hidden(member):
            yield member, entry.body


def _refuse(name: str, member: str, what: str) -> NoReturn:
    raise BadData(f"{name} holds {member if member.isprintable() else ascii(member)}, {what}")
