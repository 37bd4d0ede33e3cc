"""The records in the order in which they are handed out: first those that are held out, then shard 0's, shard 1's, ...

`SourceOrder` keeps the source's order and picks the held-out records evenly spread; `shuffle.ShuffledOrder`
is a seeded permutation of all of them. Both write any stretch of the sequence without holding more than a few MiB.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from paddle_node.splitting.framing import LINES
from paddle_node.splitting.part_file import PartFile
from paddle_node.splitting.units import Unit

if TYPE_CHECKING:
    from paddle_node.splitting.picking import Batch


class Order(Protocol):
    """Any order of all records."""

    def write(self, first: int, last: int, part: PartFile) -> None:
        """Writes the records at positions `first` to `last` (exclusive) of the sequence."""


class SourceOrder:
    """Held-out record m is number (2m+1)M/2H of the source's M records, so also a sorted source is represented."""

    def __init__(self, units: Sequence[Unit], held_out: int) -> None:
        self._units = units
        self._ends = list(accumulate(unit.records for unit in units))
        self._records = self._ends[-1]
        self._held = held_out

    def write(self, first: int, last: int, part: PartFile) -> None:
        if first >= last:
            return
        if last <= self._held:
            self._write_held(first, last, part)
            return
        first, last = first - self._held, last - self._held
        skipped = self._held_before(last - 1)
        self._write_kept(first + self._held_before(first), last + skipped, part)

    def _held_number(self, which: int) -> int:
        return (2 * which + 1) * self._records // (2 * self._held)

    def _held_before(self, kept: int) -> int:
        """How many held-out records precede kept record number `kept`."""
        return bisect_right(range(self._held), kept, key=lambda which: self._held_number(which) - which)

    def _write_kept(self, start: int, end: int, part: PartFile) -> None:
        which = bisect_left(range(self._held), start, key=self._held_number)
        if which == self._held or self._held_number(which) >= end:
            for unit, first, last in self._stretches(start, end):
                self._copy(unit, first, last, part)
            return
        for at, batch in self._batches(start, end):
            holes, which = self._numbers(which, self._held, at, batch.records)
            batch.without(holes, part)

    def _write_held(self, first: int, last: int, part: PartFile) -> None:
        which = first
        for at, batch in self._batches(self._held_number(first), self._held_number(last - 1) + 1):
            wanted, which = self._numbers(which, last, at, batch.records)
            batch.only(wanted, part)

    def _numbers(self, which: int, last: int, at: int, many: int) -> tuple[list[int], int]:
        """Where held-out records `which` to `last` (exclusive) lie among the `many` from `at`, and the first one behind these."""
        found = []
        while which < last and (number := self._held_number(which) - at) < many:
            found.append(number)
            which += 1
        return found, which

    def _copy(self, unit: Unit, first: int, last: int, part: PartFile) -> None:
        start, end = unit.locate(first), unit.locate(last)
        if unit.framing is LINES:
            part.copy(unit.path, start, end, last - first)
            return
        with unit.path.open("rb") as stream:
            stream.seek(start)
            for records in unit.framing.batches(stream, end - start):
                part.records(records)

    def _batches(self, start: int, end: int) -> Iterator[tuple[int, Batch]]:
        """Batches of the source's records with the number of each one's first."""
        from paddle_node.splitting import picking  # Late: without holding out small data needs no numpy.

        at = start
        for unit, first, last in self._stretches(start, end):
            begin, finish = unit.locate(first), unit.locate(last)
            with unit.path.open("rb") as stream:
                stream.seek(begin)
                for batch in picking.batches(unit.framing, stream, finish - begin):
                    yield at, batch
                    at += batch.records

    def _stretches(self, start: int, end: int) -> Iterator[tuple[Unit, int, int]]:
        """Units and their own record numbers that make up records `start` to `end` of the source."""
        for number in range(bisect_right(self._ends, start), len(self._units)):
            unit = self._units[number]
            base = self._ends[number] - unit.records
            if base >= end:
                return
            if unit.records:
                yield unit, max(start - base, 0), min(end - base, unit.records)
