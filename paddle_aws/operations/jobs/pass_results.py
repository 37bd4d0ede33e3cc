"""The passes of a job: the files that were saved of each, and what its trainers measured."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paddle_aws.operations.jobs.progress.training_metrics import Pass
from paddle_aws.operations.jobs.volume.saved_passes import SavedPass


@dataclass(frozen=True)
class PassResult:
    """One pass."""

    number: int
    saved: SavedPass | None
    """None: it is not on the volume, or no longer."""
    measured: Pass | None
    """None: not all of its trainers have reported it."""

    @property
    def state(self) -> str:
        """Whether it can be fetched: complete, incomplete or removed."""
        if self.saved is None or not (self.saved.complete or self.saved.files):
            return "removed"
        return "complete" if self.saved.complete else "incomplete"

    def as_json(self) -> dict[str, Any]:
        """Returns what `results --json` says of it, whose keys are a promise."""
        saved = {"pass": self.number, "complete": False, "files": 0, "bytes": 0}
        if self.saved is not None:
            saved = self.saved.as_json()
        if self.measured is None:
            return saved
        measured = {
            name: getattr(self.measured, name)
            for name in ("loss", "records", "seconds", "attempt", "ended")
        }
        trainers = [
            {name: getattr(trainer, name) for name in ("trainer", "loss", "records", "seconds")}
            for trainer in self.measured.trainers
        ]
        return saved | measured | {"trainers": trainers}


def join_passes(saved: Iterable[SavedPass], measured: Iterable[Pass]) -> list[PassResult]:
    """Returns the passes in order; of several saves of one, the last of `saved` counts."""
    saves = {pass_.number: pass_ for pass_ in saved}
    measures = {pass_.number: pass_ for pass_ in measured}
    return [
        PassResult(number, saves.get(number), measures.get(number))
        for number in sorted(saves.keys() | measures.keys())
    ]
