"""Passes as the trainers report them: loss, records and times, from the metrics on the volume.

A pass counts once all its trainers have reported it in one attempt; a later attempt's pass replaces
an earlier one's.
"""

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

NEEDED = {"pass", "attempt", "loss", "records", "seconds", "time"}


@dataclass(frozen=True)
class TrainerPass:
    """One line of a trainer's metrics."""

    trainer: int
    loss: float
    records: int
    seconds: float
    ended: float
    """Seconds since 1970."""


@dataclass(frozen=True)
class Pass:
    """One pass of the whole job."""

    number: int
    attempt: int
    trainers: tuple[TrainerPass, ...]

    @property
    def loss(self) -> float:
        """The mean over all records of the pass."""
        losses = sum(trainer.loss * trainer.records for trainer in self.trainers)
        return losses / max(self.records, 1)

    @property
    def records(self) -> int:
        return sum(trainer.records for trainer in self.trainers)

    @property
    def seconds(self) -> float:
        """The slowest trainer's seconds."""
        return max(trainer.seconds for trainer in self.trainers)

    @property
    def began(self) -> float:
        return min(trainer.ended - trainer.seconds for trainer in self.trainers)

    @property
    def ended(self) -> float:
        return max(trainer.ended for trainer in self.trainers)


class Passes:
    """Assembles passes from their trainers' lines, in any order.

    A run may have other trainers than the previous one: each pass waits for as many as its own
    lines say.
    """

    def __init__(self, trainers: Collection[int] = ()) -> None:
        """`trainers` are those of passes whose lines do not say how many trainers there are."""
        self._trainers = set(trainers)
        self._seen: dict[tuple[int, int], dict[int, TrainerPass]] = {}
        self.complete: dict[int, Pass] = {}

    def add(self, trainer: int, entry: Mapping[str, Any]) -> Pass | None:
        """Returns the pass that the line completes; None if other trainers' lines are missing, or
        the line reports no pass.
        """
        if not entry.keys() >= NEEDED or "step" in entry:
            return None
        key = number, attempt = int(entry["pass"]), int(entry["attempt"])
        seen = self._seen.setdefault(key, {})
        seen[trainer] = TrainerPass(
            trainer=trainer,
            loss=float(entry["loss"]),
            records=int(entry["records"]),
            seconds=float(entry["seconds"]),
            ended=float(entry["time"]),
        )
        expected = set(range(int(entry["trainers"]))) if "trainers" in entry else self._trainers
        earlier = self.complete.get(number)
        if seen.keys() != expected or (earlier is not None and earlier.attempt > attempt):
            return None
        self.complete[number] = Pass(number, attempt, tuple(seen[rank] for rank in sorted(seen)))
        return self.complete[number]

    @property
    def in_order(self) -> list[Pass]:
        return [self.complete[number] for number in sorted(self.complete)]


def passes(metrics: Mapping[int, str]) -> list[Pass]:
    """Reads passes from metrics files by trainer id; every trainer that has to report has an entry,
    empty or not.
    """
    assembled = Passes(metrics)
    for trainer, text in metrics.items():
        for line in text.splitlines(keepends=True):
            # Skips an incomplete line, or what a crash left of a line.
            with suppress(ValueError):
                if line.endswith("\n") and isinstance(entry := json.loads(line), dict):
                    assembled.add(trainer, entry)
    return assembled.in_order
