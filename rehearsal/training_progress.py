"""Training as it goes, read from the trainers' metrics on the volume at every look."""

from __future__ import annotations

from paddle_node.contract import JobFolder

from operations.training_metrics import Pass, passes


class TrainingProgress:
    """What `trainers` trainers have reported so far in `folder`."""

    def __init__(self, folder: JobFolder, trainers: int) -> None:
        self._folder, self._trainers = folder, trainers
        self._metrics = dict.fromkeys(range(trainers), "")
        self.passes: dict[int, Pass] = {}

    def read(self) -> list[Pass]:
        """The passes that became complete, or were trained again, since the last call."""
        for trainer in self._metrics:
            file = self._folder.metrics(trainer)
            self._metrics[trainer] = file.read_text() if file.exists() else ""
        new = [one for one in passes(self._metrics) if self.passes.get(one.number) != one]
        self.passes |= {one.number: one for one in new}
        return new

    @property
    def waiting_for(self) -> str:
        """How far the training is, in words."""
        if not any(self._metrics.values()):
            return "pods are starting, pservers and trainers meet"
        return f"pass {max(self.passes, default=-1) + 1} of {self._trainers} trainers"
