"""Passes as the trainers report them: loss, records and times, from the metrics on the volume.

Promises: a pass counts once all trainers have reported it in one attempt; a pass that a later attempt trained again
replaces the earlier one; half a line, which a trainer is just writing, is left for the next reading.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TrainerPass:
    """One line of a trainer's metrics."""

    trainer: int
    loss: float
    records: int
    seconds: float
    ended: float
    """Seconds since 1970."""
    skipped: int = 0
    """Lines of the shard that are no records to the program."""


@dataclass(frozen=True)
class Pass:
    """One pass of the whole job."""

    number: int
    attempt: int
    trainers: tuple[TrainerPass, ...]

    @property
    def loss(self) -> float:
        """The mean over all records of the pass."""
        return sum(one.loss * one.records for one in self.trainers) / max(self.records, 1)

    @property
    def records(self) -> int:
        return sum(one.records for one in self.trainers)

    @property
    def seconds(self) -> float:
        """Of the slowest trainer."""
        return max(one.seconds for one in self.trainers)

    @property
    def began(self) -> float:
        return min(one.ended - one.seconds for one in self.trainers)

    @property
    def ended(self) -> float:
        return max(one.ended for one in self.trainers)


def passes(metrics: Mapping[int, str]) -> list[Pass]:
    """From each trainer's metrics file, by trainer id; all trainers that are to report have an entry, empty or not.

    A run may have other trainers than the one before it: each pass waits for as many as its own lines say.
    """
    seen: dict[tuple[int, int], dict[int, TrainerPass]] = {}
    wanted: dict[tuple[int, int], set[int]] = {}
    for trainer, text in metrics.items():
        for line in text.splitlines(keepends=True):
            entry = _entry(line)
            if entry is not None:
                key = (int(entry["pass"]), int(entry["attempt"]))
                wanted[key] = set(range(int(entry["trainers"]))) if "trainers" in entry else set(metrics)
                seen.setdefault(key, {})[trainer] = TrainerPass(
                    trainer=trainer,
                    loss=float(entry["loss"]),
                    records=int(entry["records"]),
                    seconds=float(entry["seconds"]),
                    ended=float(entry["time"]),
                    skipped=int(entry.get("skipped", 0)),
                )
    newest: dict[int, Pass] = {}
    for (number, attempt), trainers in sorted(seen.items()):
        if trainers.keys() == wanted[number, attempt]:
            newest[number] = Pass(number, attempt, tuple(trainers[key] for key in sorted(trainers)))
    return [newest[number] for number in sorted(newest)]


def _entry(line: str) -> dict[str, Any] | None:
    if not line.endswith("\n"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    needed = {"pass", "attempt", "loss", "records", "seconds", "time"}
    return found if isinstance(found, dict) and needed <= found.keys() else None
