"""Objects of the source become units: files on this volume, or in place, that hold nothing but records one after another.

Promises: the grouping depends on the listing alone, so every pod finds the same units; a large plain file of the container
is a unit where it lies; everything else is downloaded and unpacked into the folder of work once, small objects
together, and each file's last line ends there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from paddle_node.splitting import newlines, user_reader
from paddle_node.splitting.framing import LINES, SIZED, Framing
from paddle_node.splitting.kinds import beginning, is_plain, refuse_packed
from paddle_node.splitting.source import Object, Reader
from paddle_node.splitting.steps import Step, Steps
from paddle_node.splitting.user_reader import RecordReader

TOGETHER = 64 << 20
"""Bytes up to which objects share a unit: many small files become few steps."""
MARK = 4 << 20
"""Bytes between two places whose record number is known."""
BLOCK = 1 << 20
NEAR = 1 << 16
"""Bytes in which a line is expected to end."""


@dataclass
class Unit:
    """Records in a file, and how to find one by its number."""

    number: int
    path: Path
    size: int
    """Bytes."""
    framing: Framing
    records: int = 0
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    passed: array[int] = field(default_factory=lambda: array("Q"))
    """Lines: newlines before the offset. Sized: records before the offset, which is where one begins."""

    def locate(self, record: int) -> int:
        """The byte at which record number `record` begins; the end for the number after the last one."""
        if record <= 0:
            return 0
        if record >= self.records:
            return self.size
        with self.path.open("rb") as stream:
            return self._line(stream, record) if self.framing is LINES else self._sized(stream, record)

    def border(self, offset: int) -> int:
        """The first record's beginning at or after byte `offset`."""
        if offset in (0, self.size):
            return offset
        if self.framing is not LINES:
            at = bisect_left(self.offsets, offset)
            return self.offsets[at] if at < len(self.offsets) else self.size
        with self.path.open("rb") as stream:
            position = offset - 1
            stream.seek(position)
            while block := stream.read(NEAR):
                found = block.find(b"\n")
                if found >= 0:
                    return position + found + 1
                position += len(block)
        return self.size

    def _line(self, stream: IO[bytes], record: int) -> int:
        at = bisect_left(self.passed, record) - 1
        offset, left = self.offsets[at], record - self.passed[at]
        stream.seek(offset)
        newline = newlines.counter(0)
        while True:
            block = stream.read(BLOCK)
            found = newline(block, len(block))
            if found >= left:
                return offset + newlines.behind(block, left)
            left -= found
            offset += len(block)

    def _sized(self, stream: IO[bytes], record: int) -> int:
        at = bisect_right(self.passed, record) - 1
        offset, left = self.offsets[at], record - self.passed[at]
        stream.seek(offset)
        for _ in range(left):
            offset += 8 + int.from_bytes(stream.read(8), "little")
            stream.seek(offset)
        return offset


def group(objects: Sequence[Object]) -> list[tuple[Object, ...]]:
    """Neighbours in the listing share a unit up to `TOGETHER` bytes."""
    groups: list[list[Object]] = []
    room = 0
    for thing in objects:
        size = TOGETHER if thing.size is None else thing.size
        if not groups or size > room:
            groups.append([])
            room = TOGETHER
        groups[-1].append(thing)
        room -= size
    return [tuple(members) for members in groups]


def prepare(steps: Steps, source: Reader, objects: Sequence[Object], reader: RecordReader | None, workers: int) -> list[Unit]:
    """Every unit as a file of records, not yet counted where they are lines."""
    groups = group(objects)
    todo = [
        Step(f"unit-{number:06d}", _work(steps, source, members, number, reader), sum(thing.size or 0 for thing in members))
        for number, members in enumerate(groups)
    ]
    framing = SIZED if reader else LINES
    units = []
    for number, (members, result) in enumerate(zip(groups, steps.run(todo, workers), strict=True)):
        in_place = source.local(members[0])
        path = in_place if result["in_place"] and in_place else _file(steps, number)
        unit = Unit(number, path, result["bytes"], framing, result.get("records", 0))
        for offset, passed in result.get("marks", ()):
            unit.offsets.append(offset)
            unit.passed.append(passed)
        units.append(unit)
    return units


def _work(
    steps: Steps, source: Reader, members: tuple[Object, ...], number: int, reader: RecordReader | None
) -> Callable[[], dict[str, Any]]:
    def work() -> dict[str, Any]:
        alone = members[0] if len(members) == 1 else None
        here = source.local(alone) if alone else None
        if alone and here is not None and reader is None and is_plain(here):
            refuse_packed(beginning(here), alone.name)
            steps.progress.add(here.stat().st_size)
            return {"in_place": True, "bytes": here.stat().st_size}
        path = _file(steps, number)
        if alone and here is None and reader is None:
            with fetched(steps, source, alone, f"{number}") as raw:
                if is_plain(raw):
                    refuse_packed(beginning(raw), alone.name)
                    path.parent.mkdir(exist_ok=True)
                    raw.replace(path)
                    return {"in_place": False, "bytes": path.stat().st_size}
        from paddle_node.splitting import unpacking  # Late: plain sources need none of its libraries.

        with steps.file(path) as stream:
            gather = _Records(stream, reader) if reader else _Lines(stream)
            for at, thing in enumerate(members):
                name = f"{number}" if alone else f"{number}-{at}"
                with fetched(steps, source, thing, name) as raw, unpacking.damage_of(thing.name):
                    for name, content in unpacking.members(raw, thing.name):
                        gather.take(content, name)
        return {"in_place": False, **gather.result()}

    return work


@contextmanager
def fetched(steps: Steps, source: Reader, thing: Object, name: str) -> Iterator[Path]:
    """The object as a file while the block lasts: in place, or downloaded and gone afterwards."""
    here = source.local(thing)
    if here is not None:
        yield here
        steps.progress.add(thing.size or 0)
        return
    raw = steps.folder / "raw" / name
    raw.parent.mkdir(exist_ok=True)
    if not raw.exists():
        source.download(thing, raw, steps.progress.add)
    try:
        yield raw
    except OSError:
        raise  # A full volume: what was downloaded is kept for the next run.
    except BaseException:
        raw.unlink(missing_ok=True)
        raise
    raw.unlink(missing_ok=True)


class _Lines:
    """Files one after the other, none of which runs into the next."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._bytes = 0

    def take(self, content: IO[bytes], name: str) -> None:
        last = b"\n"
        size = self._bytes
        while block := content.read(BLOCK):
            if self._bytes == size:
                refuse_packed(block, name)
            self._stream.write(block)
            self._bytes += len(block)
            last = block[-1:]
        if last != b"\n":
            self._stream.write(b"\n")
            self._bytes += 1

    def result(self) -> dict[str, Any]:
        return {"bytes": self._bytes}


class _Records:
    """What the user's reader yields, each with its length in front."""

    def __init__(self, stream: IO[bytes], reader: RecordReader) -> None:
        self._stream = stream
        self._reader = reader
        self._bytes = 0
        self._records = 0
        self._marks = [(0, 0)]

    def take(self, content: IO[bytes], name: str) -> None:
        for record in user_reader.records(self._reader, content, name):
            if self._bytes - self._marks[-1][0] >= MARK:
                self._marks.append((self._bytes, self._records))
            self._bytes += self._stream.write(SIZED.stored((record,)))
            self._records += 1

    def result(self) -> dict[str, Any]:
        return {"bytes": self._bytes, "records": self._records, "marks": self._marks}


def _file(steps: Steps, number: int) -> Path:
    return steps.folder / "units" / f"{number:06d}"
