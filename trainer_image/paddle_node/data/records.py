"""From pieces of the source to lists of records.

Promises: a record's bytes pass through unchanged; of lines each has its newline, which a last one may lack at the source;
memory is a block and the longest record.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from paddle_node.contract import ExitCode
from paddle_node.data import user_reader
from paddle_node.data.sources import unpack
from paddle_node.data.sources.registry import Source
from paddle_node.data.sources.slices import Piece
from paddle_node.data.user_reader import LONGEST, RecordReader
from paddle_node.failure import Failure

BLOCK = 1 << 17
"""Bytes whose lines are in memory at a time: about what a processor keeps beside it."""


def batches(source: Source, pieces: Iterable[Piece], format: str, reader: RecordReader | None) -> Iterator[list[bytes]]:
    """Raises `Failure` for whatever is damaged, or no record."""
    for piece in pieces:
        if piece.end is not None:
            with source.open(piece.thing, max(piece.begin - 1, 0)) as stream:
                yield from _between(stream, piece.begin, piece.end, piece.thing.name)
            continue
        for name, content in unpack.members(source, piece.thing, format):
            yield from _given(reader, content, name) if reader else _lines(content, name)


def _lines(stream: BinaryIO, name: str, left: Callable[[int], int] = lambda size: BLOCK) -> Iterator[list[bytes]]:
    size = 0
    while block := stream.read(left(size)):
        if not block.endswith(b"\n"):
            rest = stream.readline(LONGEST)
            if len(rest) == LONGEST and not rest.endswith(b"\n"):
                raise Failure(
                    ExitCode.BAD_DATA, f"{name} has a line longer than {LONGEST >> 20} MiB: is this a text of one record a line?"
                )
            block += rest
        size += len(block)
        yield io.BytesIO(block if block.endswith(b"\n") else block + b"\n").readlines()


def _between(stream: BinaryIO, begin: int, end: int, name: str) -> Iterator[list[bytes]]:
    at = max(begin - 1, 0)
    while begin and (passed := stream.readline(BLOCK)):
        # The line in which the byte before this piece lies belongs to the piece before.
        at += len(passed)
        if passed.endswith(b"\n"):
            break
    yield from _lines(stream, name, lambda size: max(0, min(BLOCK, end - at - size)))


def _given(reader: RecordReader, stream: BinaryIO, name: str) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for record in user_reader.records(reader, stream, name):
        batch.append(record)
        size += len(record)
        if size >= BLOCK or len(batch) >= 4096:
            yield batch
            batch, size = [], 0
    yield batch
