"""A source of data is a list of objects, each readable as a stream of bytes.

Every pod gets the same list. A stream ends after exactly the stated bytes of the listed content, or
raises a `Failure`. The user, password and query of an address are never printed.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NoReturn
from urllib.parse import urlsplit

from paddle_node.contract import Variable
from paddle_node.failure import BadData, BadSetting
from paddle_node.volume import data_manifest

BUFFER = 1 << 16
"""Bytes of a stream's buffer; larger reads bypass it."""
UNKNOWN = 64 << 20
"""Bytes assumed for an object of unknown size."""


@dataclass(frozen=True, slots=True)
class Object:
    """One file of the source. All objects are held in memory, at about 350 bytes each."""

    name: str
    """Path relative to the source; for a single file, its file name."""
    size: int | None
    """Bytes; None if an HTTP server does not say."""
    mark: str
    """Changes with the content; empty if unknown."""
    address: str
    """How its source finds the object again: a path, a key or a URL."""


class Source(ABC):
    """One kind of source."""

    ranges = True
    """Whether a stream can begin anywhere, and can seek. Known after `objects()`."""

    def __init__(self, uri: str) -> None:
        self.uri = public_address(uri)
        # A different query may mean different data.
        self.identity = hashlib.sha256(uri.encode(errors="surrogateescape")).hexdigest()

    def refuse(self, why: str) -> NoReturn:
        """Raises `BadSetting`: the address is followed by `why`."""
        raise BadSetting(f"{Variable.DATA_SOURCE} is {self.uri}{why}") from None

    @abstractmethod
    def objects(self) -> list[Object]:
        """Returns all objects, sorted by name. Raises `Failure` if there is none, or one cannot be
        read.
        """

    @abstractmethod
    def open(self, thing: Object, begin: int = 0) -> BinaryIO:
        """Returns the object's bytes from `begin` on. Reading raises `BadData` if the object has
        changed since it was listed.
        """


def check_address(uri: str) -> None:
    """Raises `BadSetting` for an address that cannot be read."""
    if fault := _address_fault(uri):
        raise BadSetting(f"{Variable.DATA_SOURCE} is {public_address(uri)!r}{fault}")


def _address_fault(uri: str) -> str:
    """Returns what is wrong with an address; empty: nothing."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        needed = "an absolute path in the container, s3://bucket/key or an https:// address"
        return "" if uri.startswith("/") else f": {needed} is needed"
    if scheme == "s3":
        refused = ", with a user or password: a bucket is read with the pod's own identity"
        return refused if "@" in rest.partition("/")[0] else ""
    if scheme not in ("https", "http"):
        return f": paths, s3://, https:// and http:// can be read, {scheme}:// cannot"
    if not re.fullmatch("[!-~]+", uri):
        return ": write blanks and letters beyond ASCII as %20 and the like"
    try:
        parts = urlsplit(uri)
        host = parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        host = None
    if not host:
        return ": its host or port cannot be read"
    if parts.username is not None:
        return ", with a user or password, which would not be sent: use a signed address"
    return ""


def public_address(uri: str) -> str:
    """Returns the address without user, password and query, for logs and files that others read."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return uri if uri.startswith("/") else re.sub(r"[:?#@].*", "...", uri, flags=re.DOTALL)
    if scheme == "s3":
        bucket, slash, key = rest.partition("/")  # A key may contain any character.
        return f"s3://{bucket.rpartition('@')[2]}{slash}{key}"
    authority, slash, path = re.split("[?#]", rest)[0].partition("/")
    host = authority.rpartition("@")[2]
    if not re.fullmatch(r"([\w.-]*|\[[\da-fA-F:.%]+\])(:\d+)?", host):
        # This may be half of a password that contains a slash or a question mark.
        return f"{scheme}://..."
    return f"{scheme}://{host}{slash}{path}"


def summary(source: Source, objects: Sequence[Object]) -> data_manifest.SourceSummary:
    """Returns the manifest's entry for the source. The etag is empty if a change of the content
    could not be detected.
    """
    size = sum(thing.size or 0 for thing in objects)
    if not all(thing.mark for thing in objects):
        return data_manifest.SourceSummary(source.uri, size, "")
    listing = hashlib.sha256(f"{source.identity}\n".encode())
    for thing in objects:
        # File names on Linux are bytes, and need not be UTF-8.
        listing.update(
            f"{thing.name}\0{thing.size}\0{thing.mark}\n".encode(errors="surrogateescape")
        )
    return data_manifest.SourceSummary(source.uri, size, f"sha256:{listing.hexdigest()}")


def is_hidden(name: str) -> bool:
    """Returns whether the file, or a folder above it, begins with a dot: .DS_Store and
    __MACOSX/._a.txt are not data.
    """
    return any(part.startswith(".") for part in name.split("/"))


def require_relative(name: str, where: str) -> str:
    """Returns the name as a relative path that does not lead elsewhere. Raises `BadData` if that is
    impossible.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or "\0" in name:
        raise BadData(f"{where} has a member named {name!r}, which leads out of it")
    return "/".join(parts)


def refuse_changed(name: str) -> NoReturn:
    """Raises `BadData` for an object that has changed since it was listed."""
    raise BadData(f"{name} changed while it was being read: run the split again")


@dataclass(frozen=True, slots=True)
class Piece:
    """An object, or those of its lines that begin at or after `begin` and before `end`."""

    thing: Object
    begin: int = 0
    end: int | None = None

    @property
    def bytes(self) -> int:
        if self.end is not None:
            return self.end - self.begin
        return UNKNOWN if self.thing.size is None else self.thing.size


def cut(
    objects: Sequence[Object], many: int, cuttable: Callable[[Object], bool]
) -> list[list[Piece]]:
    """Returns `many` slices of about equal bytes in the order of the listing; some may be empty.

    Cuts only objects that lie across a border and are `cuttable`. A line belongs to the slice in
    which it begins.
    """
    pieces = list(map(Piece, objects))
    total = sum(piece.bytes for piece in pieces)
    borders = [total * number // many for number in range(1, many)]
    slices: list[list[Piece]] = [[] for _ in range(many)]
    at = 0
    for piece in pieces:
        end = at + piece.bytes
        inner = sorted({border for border in borders if at < border < end})
        if inner and cuttable(piece.thing):
            for begin, stop in zip([at, *inner], [*inner, end], strict=True):
                slices[bisect_right(borders, begin)].append(
                    Piece(piece.thing, begin - at, stop - at)
                )
        else:
            slices[bisect_right(borders, at)].append(piece)
        at = end
    return slices
