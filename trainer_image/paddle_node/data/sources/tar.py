"""Reads a tar strictly: it ends where it says it ends, and holds what its checksums confirm.

Each header has a checksum. Bodies have none; long names are bodies of extended headers, so they
have none either. Python's tarfile takes zeros or a damaged header for the end, and drops what it
cannot read of a long name. Here a member behind an end mark, padding that no tar writes and a long
name that contradicts its header raise `tarfile.ReadError`.
"""

import re
import tarfile
from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple

from paddle_node.data.sources.source import BUFFER, is_hidden

BLOCK = tarfile.BLOCKSIZE
END = 2 * BLOCK
"""Bytes of the end mark; a tar is then filled with zeros up to a whole record."""
RECORD_BLOCKS = 20
"""The most blocks of a record, which is also what most tars use; more are for tapes."""
LARGE = 8 << 30
"""Bytes from which a member's size may be in an extended header alone."""
LONGEST_EXTENSION = 1 << 20
"""Maximum bytes of an extended header; a longer one counts as damage."""
SHORT_NAME = 100
"""Bytes of a header's own name."""
LONG_NAMES, PAX = (b"L", b"K"), (b"x", b"X", b"g")
NO_BODY = (b"1", b"2", b"3", b"4", b"5", b"6")
"""Types of links, devices, folders and pipes, whatever size their header has."""
_PAX_RECORD = re.compile(rb"([1-9]\d{0,7}) ([^=\0\n]+)=")
_PAX_KEYWORDS = (
    "atime", "charset", "comment", "ctime", "gid", "gname", "hdrcharset",
    "linkpath", "mtime", "path", "size", "uid", "uname",
)  # fmt: skip


class Body:
    """A member's bytes, which can be read until the next member is requested."""

    def __init__(self, raw: BinaryIO, size: int) -> None:
        self._raw = raw
        self._left = size
        self._padding = -size % BLOCK

    def read(self, amount: int) -> bytes:
        block = self._raw.read(min(amount, self._left))
        self._left -= len(block)
        if self._left and not block:
            raise tarfile.ReadError("it ends within a member")
        return block

    def skip(self) -> None:
        while self.read(BUFFER):
            pass
        _read_exactly(self._raw, self._padding)


class Member(NamedTuple):
    """One member, with what extended headers say of it."""

    name: str
    header: tarfile.TarInfo
    sparse: bool
    body: Body


def members(raw: BinaryIO) -> Iterator[Member]:
    """Yields the members. Raises `tarfile.TarError` for damage, even behind the last one."""
    at, headers, shared = 0, dict[str, bytes](), dict[str, bytes]()
    while (block := raw.read(BLOCK)) != bytes(BLOCK):
        if not block:
            raise tarfile.ReadError("the two blocks of zeros at its end are missing")
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        extension = header.type in (*LONG_NAMES, *PAX)
        size = header.size
        if not extension and header.type in NO_BODY:
            size = 0
        elif not extension:
            size = int(headers.get("size") or shared.get("size") or size)
            # A header has room for eight GiB, and has a checksum.
            if size != header.size and size < LARGE:
                raise tarfile.ReadError("an extended header's size is not that of its member")
        if size < 0 or (extension and size > LONGEST_EXTENSION):
            raise tarfile.ReadError(f"a header has {size} bytes")
        at += BLOCK + size + -size % BLOCK
        if extension:
            text = _read_exactly(raw, size)
            if _read_exactly(raw, -size % BLOCK).strip(b"\0"):
                raise tarfile.ReadError("an extended header is longer than it says")
            if header.type in LONG_NAMES:
                headers.setdefault("path" if header.type == b"L" else "linkpath", _long_name(text))
            else:
                (shared if header.type == b"g" else headers).update(_pax(text))
            continue
        facts, headers = shared | headers, {}
        sparse = header.type == tarfile.GNUTYPE_SPARSE or any(
            keyword.startswith("GNU.sparse.") for keyword in facts
        )
        body = Body(raw, size)
        yield Member(_name(header, facts), header, sparse, body)
        body.skip()
    if headers:
        raise tarfile.ReadError("an extended header has no member")
    _end(raw, at)


def _end(raw: BinaryIO, at: int) -> None:
    """Reads what follows the first block of zeros, which lies at byte `at`."""
    zeros = BLOCK
    while block := raw.read(BUFFER):
        if block.strip(b"\0"):
            raise tarfile.ReadError(
                f"zeros at byte {at} end it, and more follows: a part of it was zeroed, or "
                "archives were joined without tar --concatenate"
            )
        zeros += len(block)
    records = (BLOCK * blocks for blocks in range(1, RECORD_BLOCKS + 1))
    if zeros < END or not any(
        (at + zeros) % record == 0 and zeros < END + record for record in records
    ):
        raise tarfile.ReadError(
            f"{zeros} bytes of zeros follow its last member, and a tar ends with {END}, filled up "
            f"to a record of at most {RECORD_BLOCKS} blocks"
        )


def _read_exactly(raw: BinaryIO, size: int) -> bytes:
    """Reads `size` bytes, however few the stream returns at a time."""
    content = b""
    while len(content) < size:
        if not (block := raw.read(size - len(content))):
            raise tarfile.ReadError("it is cut short")
        content += block
    return content


def _long_name(text: bytes) -> bytes:
    name = text.removesuffix(b"\0")
    if not name or b"\0" in name:
        raise tarfile.ReadError("a long name holds zeros")
    return name


def _pax(text: bytes) -> Mapping[str, bytes]:
    records, at = {}, 0
    while at < len(text):
        record = _PAX_RECORD.match(text, at)
        end = at + int(record[1]) if record else 0
        if record is None or not record.end() < end <= len(text) or text[end - 1 : end] != b"\n":
            raise tarfile.ReadError("an extended header cannot be read")
        keyword = record[2].decode(errors="replace")
        # Extensions have a vendor's name before a dot.
        if keyword not in _PAX_KEYWORDS and "." not in keyword:
            raise tarfile.ReadError(f"an extended header has the keyword {keyword!r}")
        records[keyword] = text[record.end() : end - 1]
        at = end
    return records


def _name(header: tarfile.TarInfo, facts: Mapping[str, bytes]) -> str:
    """Returns the member's name. Raises `tarfile.ReadError` if a long name contradicts the header's
    own.
    """
    if not (long := facts.get("path", b"")):
        return header.name
    name = long.decode("utf-8", "surrogateescape")
    # The header has the beginning of the name, or of its ASCII letters; some writers that split a
    # longer name in two abbreviate it.
    short = header.name.encode("utf-8", "surrogateescape")
    shown = (long, name.encode("ascii", "replace"), name.encode("ascii", "ignore"))
    contradicts = len(short) <= SHORT_NAME and not any(text.startswith(short) for text in shown)
    if contradicts or (name.endswith("/") and not header.isdir()):
        raise tarfile.ReadError(f"a long name is not that of its header, {header.name!r}")
    if _is_left_out(name) != _is_left_out(header.name):
        # Only a name with a checksum may leave a file out.
        raise tarfile.ReadError(
            f"a name longer than {SHORT_NAME} bytes has no checksum, and behind those, something "
            f"in it is hidden: pack without hidden files; it is {name!r}"
        )
    return name


def _is_left_out(name: str) -> bool:
    return is_hidden("/".join(part for part in name.split("/") if part != "."))
