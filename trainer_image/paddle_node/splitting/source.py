"""What a source is made of, and what every kind of source can do.

Promises: the list of objects is the same for every pod that asks: sorted by name, each with a mark of its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paddle_node.contract import ExitCode
from paddle_node.data_manifest import Source
from paddle_node.failure import Failure


@dataclass(frozen=True, slots=True)
class Object:
    """One file of the source. All of them are in memory, at about 350 bytes each."""

    name: str
    """Relative to the source; for a single file its file name."""
    size: int | None
    """Bytes; None where an HTTP server does not say."""
    etag: str
    address: str
    """How its own kind of source finds it again: a path, a key, a URL."""


class Reader(Protocol):
    """One kind of source."""

    def objects(self) -> tuple[Object, ...]:
        """All of them, sorted by name."""

    def local(self, thing: Object) -> Path | None:
        """Where the object can be read in place, or None when it has to be downloaded."""

    def download(self, thing: Object, to: Path, advance: Callable[[int], None]) -> None:
        """Makes `to` the object's bytes; continues what an interrupted download left there."""

    def unchanged(self, thing: Object) -> bool:
        """Whether what was read in place is still what was listed."""


def summary(uri: str, objects: tuple[Object, ...]) -> Source:
    """What the manifest says of the source. Access keys and signatures in an address stay out of it."""
    if len(objects) == 1:
        etag = objects[0].etag
    else:
        listing = hashlib.sha256()
        for thing in objects:
            # Names on Linux are bytes, and need not be UTF-8.
            listing.update(f"{thing.name}\0{thing.size}\0{thing.etag}\n".encode(errors="surrogateescape"))
        etag = f"sha256:{listing.hexdigest()}"
    return Source(uri=public(uri), size=sum(thing.size or 0 for thing in objects), etag=etag)


def public(uri: str) -> str:
    """The address without user, password and query, for logs and files that others read."""
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme == "s3":
        return uri
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def hidden(name: str) -> bool:
    """Whether it, or a folder that it lies in, begins with a dot: .DS_Store, __MACOSX/._a.txt and the like are no data."""
    return any(part.startswith(".") for part in name.split("/"))


def inside(name: str, where: str) -> str:
    """The name as a relative path that leads nowhere else. Raises `Failure` (BAD_DATA) where there is none."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise Failure(ExitCode.BAD_DATA, f"{where} has a member named {name!r}, which leads out of it")
    return "/".join(parts)
