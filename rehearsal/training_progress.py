"""Loss per pass as the trainers report it on the volume: what the screen shows and the plot draws.

Promises: a pass counts once every trainer has reported it in the same attempt; a pass that a later attempt
trained again replaces the earlier one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from paddle_node.contract import JobFolder


@dataclass(frozen=True)
class TrainerPass:
    """One line of a trainer's metrics."""

    number: int
    attempt: int
    trainer: int
    loss: float
    records: int
    skipped: int
    """Lines of the shard that are no records to the program."""
    seconds: float


@dataclass(frozen=True)
class Pass:
    """One pass of the whole job: its trainers' lines, in order of their ids."""

    number: int
    attempt: int
    trainers: tuple[TrainerPass, ...]

    @property
    def loss(self) -> float:
        """The mean over all records of the pass."""
        records = sum(trainer.records for trainer in self.trainers)
        return sum(trainer.loss * trainer.records for trainer in self.trainers) / max(records, 1)

    @property
    def records(self) -> int:
        return sum(trainer.records for trainer in self.trainers)

    @property
    def seconds(self) -> float:
        """Of the slowest trainer."""
        return max(trainer.seconds for trainer in self.trainers)


class TrainingProgress:
    """Reads what is new in each trainer's metrics at every `read()`."""

    def __init__(self, folder: JobFolder, trainers: int) -> None:
        self._folder, self._trainers = folder, trainers
        self._read_to = [0] * trainers
        self._seen: dict[tuple[int, int], dict[int, TrainerPass]] = {}
        self.passes: dict[int, Pass] = {}

    def read(self) -> list[Pass]:
        """The passes that became complete since the last call, in order."""
        for trainer in range(self._trainers):
            for line in self._new_lines(trainer):
                self._seen.setdefault((line.attempt, line.number), {})[line.trainer] = line
        new = []
        for (attempt, number), lines in sorted(self._seen.items()):
            known = self.passes.get(number)
            if len(lines) == self._trainers and (known is None or known.attempt < attempt):
                self.passes[number] = Pass(number, attempt, tuple(lines[i] for i in sorted(lines)))
                new.append(self.passes[number])
        return new

    @property
    def waiting_for(self) -> str:
        """How far the newest pass is, in words."""
        open_passes = [(key, lines) for key, lines in self._seen.items() if len(lines) < self._trainers]
        if open_passes:
            (_, number), lines = max(open_passes, key=lambda item: item[0])
            return f"pass {number}: {len(lines)} of {self._trainers} trainers are through"
        return f"pass {max(self.passes) + 1}" if self.passes else "pods are starting, pservers and trainers meet"

    def _new_lines(self, trainer: int) -> Iterator[TrainerPass]:
        try:
            with self._folder.metrics(trainer).open("rb") as file:
                file.seek(self._read_to[trainer])
                text = file.read()
        except FileNotFoundError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._read_to[trainer] += len(whole)
        for line in whole.splitlines():
            item = json.loads(line)
            yield TrainerPass(
                number=item["pass"],
                attempt=item["attempt"],
                trainer=item["trainer"],
                loss=float(item["loss"]),
                records=item["records"],
                skipped=item.get("skipped", 0),
                seconds=float(item["seconds"]),
            )
