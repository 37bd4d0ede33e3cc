"""Large texts that keep the source's order are read once: copied while they are counted, and dealt out afterwards.

Promises: the shards get the same records as by `counting` and `parts`, without their second pass over the source. A piece
that falls to one shard becomes its file by a rename; only those in which one shard ends and the next begins are copied again.
A piece that is not there with its size, though its step has a result (a machine lost power), is copied once more.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from paddle_node.data_manifest import DataFile
from paddle_node.splitting import newlines
from paddle_node.splitting.framing import LINES
from paddle_node.splitting.part_file import PartFile
from paddle_node.splitting.shares import PART, Share
from paddle_node.splitting.steps import Step, Steps
from paddle_node.splitting.units import Unit

LEAST = 4 << 20
"""Bytes of a piece; where they would be smaller, counting first is as fast."""
PIECES = 8
"""Of each shard: what is copied twice is about one in `PIECES`."""


@dataclass(frozen=True)
class Piece:
    """Whole lines in a file of work."""

    path: Path
    bytes: int
    records: int
    checksum: str
    again: Callable[[], object]
    """Makes it once more, the same."""

    def at(self, path: Path) -> bool:
        """Whether it lies there whole: under a name a file has all its bytes, if it has the last."""
        try:
            return path.stat().st_size == self.bytes
        except FileNotFoundError:
            return False


def piece_size(size: int, shards: int) -> int | None:
    """Bytes of a piece, for `size` bytes in all; None where counting first is better."""
    piece = min(PART, size // (PIECES * shards))
    return piece if piece >= LEAST else None


def copy(steps: Steps, units: Sequence[Unit], piece: int, workers: int) -> list[Piece]:
    """All lines of the units, in their order."""
    newline = newlines.counter(sum(unit.size for unit in units))
    todo = []
    for unit in units:
        for start in range(0, unit.size, piece):
            name = f"piece-{unit.number:06d}-{start // piece:06d}"
            end = min(start + piece, unit.size)
            todo.append(Step(name, _copy(steps, unit, start, end, _file(steps, name), newline), end - start))
    results: list[tuple[int, int, str]] = steps.run(todo, workers)
    return [
        Piece(_file(steps, step.name), size, records, checksum, step.work)
        for step, (size, records, checksum) in zip(todo, results, strict=True)
    ]


def deal(steps: Steps, pieces: Sequence[Piece], shares: Sequence[Share], workers: int) -> dict[str, tuple[DataFile, ...]]:
    """The files of each share, below `parts/<share>/` in the folder of work."""
    ends = list(accumulate(piece.records for piece in pieces))
    cut = {min(bisect_right(ends, share.last), len(ends) - 1) for share in shares if share.last not in ends}
    steps.progress.phase("dealing out", sum(pieces[number].bytes for number in cut))
    results = steps.run([Step(f"share-{share.name}", _deal(steps, pieces, ends, share)) for share in shares], workers)
    return {share.name: tuple(DataFile(**file) for file in result) for share, result in zip(shares, results, strict=True)}


def _copy(
    steps: Steps, unit: Unit, start: int, end: int, path: Path, newline: Callable[[newlines.Block, int], int]
) -> Callable[[], tuple[int, int, str]]:
    def work() -> tuple[int, int, str]:
        with PartFile(path, steps.temporary(path), LINES, steps.progress.add) as part:
            part.count(unit.path, unit.border(start), unit.border(end), newline)
        done = part.done(path.name)
        return done.bytes, done.records, done.checksum

    return work


def _deal(steps: Steps, pieces: Sequence[Piece], ends: Sequence[int], share: Share) -> Callable[[], list[dict[str, Any]]]:
    def work() -> list[dict[str, Any]]:
        files: list[DataFile] = []
        for number in range(bisect_right(ends, share.first), len(pieces)):
            piece, base = pieces[number], ends[number] - pieces[number].records
            first, last = max(share.first - base, 0), min(share.last - base, piece.records)
            if base >= share.last:
                break
            if first >= last:
                continue  # A line longer than a piece leaves the next one empty.
            name = f"part-{len(files):05d}"
            path = steps.folder / "parts" / share.name / name
            if last - first == piece.records:
                path.parent.mkdir(parents=True, exist_ok=True)
                _move(piece, path)
                files.append(DataFile(name, piece.records, piece.bytes, piece.checksum))
                continue
            if not piece.at(piece.path):
                piece.again()
            whole = Unit(0, piece.path, piece.bytes, LINES, piece.records, array("Q", [0]), array("Q", [0]))
            with PartFile(path, steps.temporary(path), LINES, steps.progress.add) as part:
                part.copy(piece.path, whole.locate(first), whole.locate(last), last - first)
            files.append(part.done(name))
        return [vars(file) for file in files]

    return work


def _move(piece: Piece, path: Path) -> None:
    if not piece.at(piece.path):
        if piece.at(path):
            return  # This step ran before, and was interrupted behind the rename.
        piece.again()
    try:
        piece.path.rename(path)
    except FileNotFoundError:
        if not piece.at(path):  # Else a pod that was taken for dead does the same step.
            raise


def _file(steps: Steps, name: str) -> Path:
    return steps.folder / "pieces" / name
