"""A training as people follow it: a row for each pass, and what the first pod's supervisor says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paddle_node import pass_metrics

from operations.job_objects import moment
from operations.log_stream import Line, clean
from operations.training_metrics import Pass, Passes
from operations.training_progress import TrainingProgress

_SHOWN_ONE_BY_ONE = 4
"""Up to so many trainers' losses stand in a row of their own; of more, the least and the greatest."""
_FOR_DEBUGGERS = (" is process ", " has read ")


class TrainingTable:
    """Each row and each sentence once; `write(text, style)` shows a line."""

    def __init__(self, write: Callable[[str, str], None]) -> None:
        self._write = write
        self._begun = False
        self._last_words = ""

    def passed(self, one: Pass) -> None:
        """A row."""
        if not self._begun:
            self._begun = True
            self._row("pass", "loss", "each trainer's loss", "records", "seconds", style="bold")
        losses = _losses([trainer.loss for trainer in one.trainers])
        self._row(str(one.number), f"{one.loss:.4f}", losses, f"{one.records:,}", f"{one.seconds:.1f}")

    def said(self, line: str) -> None:
        """A line of the first pod's log."""
        if line.startswith("[supervisor") and line != self._last_words and not any(words in line for words in _FOR_DEBUGGERS):
            self._last_words = line
            self._write(line, "dim")

    def _row(self, number: str, loss: str, losses: str, records: str, seconds: str, style: str = "") -> None:
        self._write(f"{number:>4}  {loss:>7}   {losses:<30}{records:>11}  {seconds:>7}", style)


def _losses(losses: Sequence[float]) -> str:
    if len(losses) <= _SHOWN_ONE_BY_ONE:
        return "  ".join(f"{loss:.4f}" for loss in losses)
    return f"{min(losses):.4f} to {max(losses):.4f}"


class FollowedTable:
    """The table of a training whose logs are followed; `now` hears how far the pass is."""

    def __init__(self, write: Callable[[str, str], None], now: Callable[[str], None]) -> None:
        self._table = TrainingTable(write)
        self._passes = Passes()
        self._now = now

    def hear(self, line: Line) -> None:
        """A line of any pod's log."""
        text = clean(line.text)
        facts, told = pass_metrics.heard(text), moment(line.time)
        if line.rank == 0 and (progress := TrainingProgress.heard(text, line.time)) is not None:
            self._now(str(progress))
        if facts and "step" not in facts and told is not None:
            if (one := self._passes.add(line.rank, {**facts, "time": told.timestamp()})) is not None:
                self._table.passed(one)
        elif line.rank == 0:
            self._table.said(text)
