"""Where one record ends and the next begins, in a unit of work and in a shard.

Promises: a record's bytes pass through unchanged; what `stored` writes, `batches` reads back. Two framings are
enough: `LINES` (a record is a line, in both places), and `SIZED` (what a user's reader gives: any bytes, each with its length
in front while in work, without it in the shard, where the user's own format tells them apart).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from typing import IO, Protocol

from paddle_node.contract import ExitCode
from paddle_node.failure import Failure

BATCH = 1 << 18
"""Bytes of records in memory at a time."""
LONGEST = 16 << 20
"""Bytes of one record: more would not fit the memory that a shuffle may use."""
_SIZE = struct.Struct("<Q")


class Framing(Protocol):
    """How records follow each other."""

    name: str

    def stored(self, records: Sequence[bytes]) -> bytes:
        """As they lie in files of work."""

    def final(self, records: Sequence[bytes]) -> bytes:
        """As they lie in a shard."""

    def records(self, content: bytes) -> list[bytes]:
        """What `stored` was given."""

    def batches(self, stream: IO[bytes], length: int | None = None) -> Iterator[list[bytes]]:
        """The records in the next `length` bytes (None: to the end), about `BATCH` bytes at a time."""


class Lines:
    """The newline is not part of a record; a last line may lack it."""

    name = "lines"

    def stored(self, records: Sequence[bytes]) -> bytes:
        return b"\n".join(records) + b"\n" if records else b""

    def final(self, records: Sequence[bytes]) -> bytes:
        return self.stored(records)

    def records(self, content: bytes) -> list[bytes]:
        return content[:-1].split(b"\n") if content else []

    def batches(self, stream: IO[bytes], length: int | None = None) -> Iterator[list[bytes]]:
        rest = b""
        left = length
        while left is None or left > 0:
            block = stream.read(BATCH if left is None else min(BATCH, left))
            if not block:
                break
            left = None if left is None else left - len(block)
            records = (rest + block).split(b"\n")
            rest = records.pop()
            refuse_longer(rest)
            if records:
                yield records
        if rest:
            yield [rest]


class Sized:
    """Eight bytes of length, then the record."""

    name = "sized"

    def stored(self, records: Sequence[bytes]) -> bytes:
        return b"".join([part for record in records for part in (_SIZE.pack(len(record)), record)])

    def final(self, records: Sequence[bytes]) -> bytes:
        return b"".join(records)

    def records(self, content: bytes) -> list[bytes]:
        return [record for batch in self.batches(io.BytesIO(content)) for record in batch]

    def batches(self, stream: IO[bytes], length: int | None = None) -> Iterator[list[bytes]]:
        records: list[bytes] = []
        held, left = 0, length
        while left is None or left > 0:
            head = stream.read(_SIZE.size)
            if not head:
                break
            record = stream.read(_SIZE.unpack(head)[0])
            left = None if left is None else left - len(head) - len(record)
            records.append(record)
            held += len(record)
            if held >= BATCH or len(records) >= 1 << 14:
                yield records
                records, held = [], 0
        if records:
            yield records


def refuse_longer(line: bytes) -> None:
    """Raises `Failure` (BAD_DATA) for the beginning of a line that is longer than `LONGEST`."""
    if len(line) > LONGEST:
        raise Failure(
            ExitCode.BAD_DATA,
            f"a line is longer than {LONGEST >> 20} MiB: shuffling and holding out need shorter ones; is this a text of lines?",
        )


LINES = Lines()
SIZED = Sized()
