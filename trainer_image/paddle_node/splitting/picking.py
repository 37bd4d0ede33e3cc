"""Some records of a stretch of the source, or the rest without them.

Promises: memory is a block or a batch; a record passes through unchanged; of lines none becomes an object of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Protocol

import numpy as np

from paddle_node.splitting import framing
from paddle_node.splitting.framing import LINES, Framing
from paddle_node.splitting.part_file import PartFile


class Batch(Protocol):
    """Records one after the other; `numbers` are theirs in the batch, rising."""

    records: int

    def only(self, numbers: Sequence[int], part: PartFile) -> None:
        """Appends those."""

    def without(self, numbers: Sequence[int], part: PartFile) -> None:
        """Appends all but those."""


def batches(form: Framing, stream: IO[bytes], length: int) -> Iterator[Batch]:
    """The records in the next `length` bytes. Raises `Failure` (BAD_DATA) where a line is too long."""
    if form is not LINES:
        yield from map(_List, form.batches(stream, length))
        return
    rest = b""
    while length > 0 and (block := stream.read(min(framing.BATCH, length))):
        length -= len(block)
        content = rest + block
        cut = content.rfind(b"\n") + 1
        rest = content[cut:]
        framing.refuse_longer(rest)
        if cut:
            yield _Lines(content[:cut])
    if rest:
        yield _Lines(rest + b"\n")


class _Lines:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n")) + 1
        self.records = len(self._ends)

    def only(self, numbers: Sequence[int], part: PartFile) -> None:
        part.lines(b"".join([self._content[begin:end] for begin, end in self._places(numbers)]), len(numbers))

    def without(self, numbers: Sequence[int], part: PartFile) -> None:
        kept, at = [], 0
        for begin, end in self._places(numbers):
            kept.append(self._content[at:begin])
            at = end
        part.lines(b"".join([*kept, self._content[at:]]), self.records - len(numbers))

    def _places(self, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
        places = np.asarray(numbers, np.int64)
        begins = np.where(places > 0, self._ends[places - 1], 0)
        return zip(begins.tolist(), self._ends[places].tolist(), strict=True)


class _List:
    def __init__(self, records: list[bytes]) -> None:
        self._records = records
        self.records = len(records)

    def only(self, numbers: Sequence[int], part: PartFile) -> None:
        part.records([self._records[number] for number in numbers])

    def without(self, numbers: Sequence[int], part: PartFile) -> None:
        left_out = set(numbers)
        part.records([record for number, record in enumerate(self._records) if number not in left_out])
