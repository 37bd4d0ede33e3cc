"""A seeded permutation of all records that fits a small memory, whatever their size.

Promises: every record gets a place by chance alone, the same for the same seed and source on any number of pods; at most
about `LEAF` bytes of records are in memory at a time.

How: each record is thrown into one of up to 1024 buckets; a bucket that would still be too large is thrown
again; what is left of a bucket at last, a leaf, is shuffled in memory when it is read. The chance comes from numpy's
RandomState, whose numbers are frozen for ever (that of Generator may change with a release).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from paddle_node.splitting.counting import segments
from paddle_node.splitting.framing import Framing
from paddle_node.splitting.part_file import PartFile
from paddle_node.splitting.steps import Step, Steps
from paddle_node.splitting.units import Unit

LEAF = 8 << 20
"""Bytes that a leaf may take in memory; also what a step gathers before it writes."""
PER_RECORD = 80
"""What Python adds to a record's own bytes."""
MOST_BUCKETS = 1024
TOGETHER = 1 << 18
"""Bytes that are written at a time."""
_ROW = 3 * 8
"""Of an index: offset, bytes and records of one fragment."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Run:
    """A file of fragments: bucket by bucket, each time that the memory was full."""

    path: Path
    flushes: int

    def fragments(self, bucket: int) -> Integers:
        """Rows of (offset, bytes, records) of one bucket."""
        with self.path.with_suffix(".index").open("rb") as stream:
            stream.seek(bucket * self.flushes * _ROW)
            rows: Integers = np.frombuffer(stream.read(self.flushes * _ROW), np.int64).reshape(-1, 3)
            return rows

    def totals(self, buckets: int) -> Integers:
        """Records of each bucket."""
        index = np.fromfile(self.path.with_suffix(".index"), np.int64).reshape(buckets, self.flushes, 3)
        totals: Integers = index[:, :, 2].sum(axis=1)
        return totals


def fan_out(weight: int) -> list[int]:
    """Buckets on each level until a leaf weighs `LEAF` at most; powers of two."""
    leaves, levels = -(-weight // LEAF), []
    while leaves > 1:
        buckets = min(MOST_BUCKETS, 1 << (leaves - 1).bit_length())
        levels.append(buckets)
        leaves = -(-leaves // buckets)
    return levels


class ShuffledOrder:
    """Leaves in the order of their numbers, each in an order of its own."""

    def __init__(self, steps: Steps, units: Sequence[Unit], seed: str) -> None:
        self._units = units
        self._seed = seed
        self._framing: Framing = units[0].framing
        weight = sum(unit.size + PER_RECORD * unit.records for unit in units)
        self._levels = fan_out(weight)
        self._runs: dict[tuple[int, ...], list[Run]] = {}
        for level, buckets in enumerate(self._levels):
            steps.progress.phase(f"shuffling, level {level + 1} of {len(self._levels)}", sum(unit.size for unit in units))
            self._throw(steps, level, buckets)

    @cached_property
    def _ends(self) -> Integers:
        """Position after the last record of each leaf."""
        if not self._levels:
            return np.array([sum(unit.records for unit in self._units)])
        prefixes = list(_prefixes(self._levels[:-1]))
        return np.cumsum(np.concatenate([sum(run.totals(self._levels[-1]) for run in self._runs[prefix]) for prefix in prefixes]))

    def write(self, first: int, last: int, part: PartFile) -> None:
        leaf = int(np.searchsorted(self._ends, first, side="right"))
        while first < last:
            base = int(self._ends[leaf - 1]) if leaf else 0
            end = min(last, int(self._ends[leaf]))
            if end > first:
                self._write_leaf(leaf, first - base, end - base, part)
            first = max(first, end)
            leaf += 1

    def _write_leaf(self, leaf: int, first: int, last: int, part: PartFile) -> None:
        records, size = self._leaf(leaf)
        places = _chance(self._seed, "leaf", leaf).permutation(len(records))[first:last]
        # Few of long records, many of short ones: what is written at a time is joined first.
        many = max(1, TOGETHER * len(records) // (size + 1))
        for start in range(0, len(places), many):
            part.records(_in_order(records, places[start : start + many]))

    def _leaf(self, leaf: int) -> tuple[list[bytes], int]:
        """Its records, and their bytes together."""
        if not self._levels:
            records = [record for unit in self._units for batch in _unit(unit, 0, unit.size) for record in batch]
            return records, sum(unit.size for unit in self._units)
        prefix: tuple[int, ...] = ()
        number = leaf // self._levels[-1]
        for buckets in reversed(self._levels[:-1]):
            prefix = (number % buckets, *prefix)
            number //= buckets
        bucket = leaf % self._levels[-1]
        held: list[bytes] = []
        size = 0
        for fragment in self._fragments(self._runs[prefix], bucket):
            held += self._framing.records(fragment)
            size += len(fragment)
        return held, size

    def _fragments(self, runs: Sequence[Run], bucket: int) -> Iterator[bytes]:
        for run in runs:
            with run.path.open("rb", buffering=0) as stream:
                for offset, length, _ in run.fragments(bucket).tolist():
                    if length:
                        yield _exactly(run.path, stream.fileno(), length, offset)

    def _bucket(self, runs: Sequence[Run], bucket: int) -> Iterator[list[bytes]]:
        """A bucket that is too large for the memory."""
        for fragment in self._fragments(runs, bucket):
            yield self._framing.records(fragment)

    def _throw(self, steps: Steps, level: int, buckets: int) -> None:
        """One level: the units' segments, or every bucket of the level above, become runs."""
        todo: list[tuple[tuple[int, ...], Step]] = []

        def add(prefix: tuple[int, ...], name: str, weight: int, batches: Callable[[], Iterator[list[bytes]]]) -> None:
            todo.append((prefix, Step(name, self._work(steps, name, buckets, batches), weight)))

        if level == 0:
            for unit in self._units:
                for start, end in segments(unit):
                    add((), f"run-{unit.number:06d}-{start:016d}", end - start, partial(_unit, unit, start, end))
        else:
            for prefix in _prefixes(self._levels[:level]):
                name = "run-" + "-".join(f"{bucket:03d}" for bucket in prefix)
                add(prefix, name, 0, partial(self._bucket, self._runs[prefix[:-1]], prefix[-1]))
        results = steps.run([step for _, step in todo])
        for (prefix, step), result in zip(todo, results, strict=True):
            self._runs.setdefault(prefix, []).append(Run(_file(steps, step.name), result["flushes"]))

    def _work(
        self, steps: Steps, name: str, buckets: int, batches: Callable[[], Iterator[list[bytes]]]
    ) -> Callable[[], dict[str, Any]]:
        def work() -> dict[str, Any]:
            path = _file(steps, name)
            chance = _chance(self._seed, "throw", name)
            rows: list[list[tuple[int, int, int]]] = []
            offset = held = 0
            gathered: list[list[bytes]] = [[] for _ in range(buckets)]
            counts = np.zeros(buckets, np.int64)
            with steps.file(path) as stream:

                def flush() -> None:
                    nonlocal offset, held
                    row = []
                    for pieces, records in zip(gathered, counts.tolist(), strict=True):
                        content = b"".join(pieces)
                        stream.write(content)
                        row.append((offset, len(content), records))
                        offset += len(content)
                        pieces.clear()
                    rows.append(row)
                    counts[:] = 0
                    held = 0

                for records in batches():
                    # Batches stay small: a processor's cache holds their records from their making to their joining.
                    thrown = chance.randint(0, buckets, len(records), dtype=np.uint16)
                    sorted_by_bucket = _in_order(records, np.argsort(thrown, kind="stable"))
                    many = np.bincount(thrown, minlength=buckets)
                    counts += many
                    weight = start = 0
                    for bucket, end in enumerate(np.cumsum(many).tolist()):
                        if end > start:
                            content = self._framing.stored(sorted_by_bucket[start:end])
                            gathered[bucket].append(content)
                            weight += len(content)
                            start = end
                    held += weight
                    steps.progress.add(weight)
                    if held >= LEAF:
                        flush()
                if held:
                    flush()
            index = np.array(rows, np.int64).reshape(-1, buckets, 3).transpose(1, 0, 2)
            with steps.file(path.with_suffix(".index")) as stream:
                stream.write(index.tobytes())
            return {"flushes": len(rows)}

        return work


def _exactly(path: Path, descriptor: int, length: int, offset: int) -> bytes:
    """A file system may hand out less than it was asked for, although there is more."""
    content = os.pread(descriptor, length, offset)
    while len(content) < length:
        more = os.pread(descriptor, length - len(content), offset + len(content))
        if not more:
            raise OSError(f"{path} became shorter while it was read")
        content += more
    return content


def _prefixes(levels: Sequence[int]) -> Iterator[tuple[int, ...]]:
    if not levels:
        yield ()
        return
    for head in _prefixes(levels[:-1]):
        for bucket in range(levels[-1]):
            yield (*head, bucket)


def _unit(unit: Unit, start: int, end: int) -> Iterator[list[bytes]]:
    """Records that begin in a stretch of a unit's bytes."""
    with unit.path.open("rb") as stream:
        begin, finish = unit.border(start), unit.border(end)
        stream.seek(begin)
        yield from unit.framing.batches(stream, finish - begin)


def _chance(seed: str, *purpose: object) -> np.random.RandomState:
    digest = xxhash.xxh3_128(repr((seed, *purpose)).encode()).digest()
    return np.random.RandomState(np.frombuffer(digest, np.uint32))


def _in_order(records: Sequence[bytes], places: Integers) -> Sequence[bytes]:
    return itemgetter(*places.tolist())(records) if len(places) > 1 else [records[place] for place in places.tolist()]


def _file(steps: Steps, name: str) -> Path:
    return steps.folder / "runs" / name
