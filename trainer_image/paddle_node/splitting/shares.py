"""Who gets which stretch of the sequence, and in how many files.

Promises: counts of two shards differ by 1 at most; nothing depends on the number of pods that write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paddle_node.contract import ExitCode
from paddle_node.failure import Failure

PART = 64 << 20
"""Bytes, about, of one file of a shard: what an interrupted split may have to write again."""
HELD_OUT = "held-out"


@dataclass(frozen=True)
class Share:
    """Positions `first` to `last` (exclusive) of the sequence, for one receiver."""

    name: str
    """A shard's index, or `HELD_OUT`."""
    first: int
    last: int

    def parts(self, bytes_each: float) -> Iterator[tuple[str, int, int]]:
        """File name and stretch of each file, given the mean size of a record."""
        records = self.last - self.first
        many = max(1, min(records, round(records * bytes_each / PART)))
        for number in range(many):
            yield f"part-{number:05d}", self.first + number * records // many, self.first + (number + 1) * records // many


def shares(records: int, shards: int, hold_out: float, source: str) -> list[Share]:
    """The held-out share first (if any), then one for each shard.

    Raises `Failure` (BAD_DATA) when there are fewer records than shards.
    """
    held = held_out(records, hold_out)
    kept = records - held
    if kept < shards:
        beside = f" beside {held} held out" if held else ""
        raise Failure(ExitCode.BAD_DATA, f"{source} has {kept} records{beside}: too few for {shards} shards")
    out = [Share(HELD_OUT, 0, held)] if held else []
    return out + [
        Share(str(index), held + index * kept // shards, held + (index + 1) * kept // shards) for index in range(shards)
    ]


def held_out(records: int, hold_out: float) -> int:
    """How many are held out: the share, rounded, and one at least when any are wanted."""
    return max(1, round(records * hold_out)) if hold_out > 0 and records > 1 else 0
