"""A training as people follow it, on a cluster and in a rehearsal: a row per pass, and the first
agent's messages.
"""

from collections.abc import Callable, Sequence

from paddle_node.volume import pass_metrics
from paddle_node.volume.progress import Progress

from paddle_aws.operations.jobs.progress.training_metrics import Passes

_SHOWN_ONE_BY_ONE = 4
"""Up to this many trainers' losses are shown one by one; of more, only the least and the
greatest.
"""
_FOR_DEBUGGERS = (" is process ", " has read ", "] goodput ", "] progress ")


class TrainingTable:
    """`write(text, style)` shows a line that stays; `now` shows how far the pass is."""

    def __init__(self, write: Callable[[str, str], None], now: Callable[[str], None]) -> None:
        self.passes = Passes()
        self._write, self._now = write, now
        self._last_words = ""

    def hear(self, rank: int, line: str) -> None:
        """Takes a line of a pod's log; writes one row per pass, and one line per message of the
        first pod's agent.
        """
        facts = pass_metrics.parse_line(line)
        if rank == 0 and (progress := Progress.parse(line)) is not None:
            self._now(str(progress))
        begun = bool(self.passes.complete)
        if facts and (finished := self.passes.add(rank, facts)) is not None:
            if not begun:
                self._row("pass", "loss", "each trainer's loss", "records", "seconds", style="bold")
            losses = _losses([trainer.loss for trainer in finished.trainers])
            loss, records = f"{finished.loss:.4f}", f"{finished.records:,}"
            self._row(str(finished.number), loss, losses, records, f"{finished.seconds:.1f}")
        agents = rank == 0 and line.startswith("[agent")
        if agents and not any(words in line for words in _FOR_DEBUGGERS):
            if line != self._last_words:
                self._write(line, "dim")
            self._last_words = line

    def _row(
        self, number: str, loss: str, losses: str, records: str, seconds: str, style: str = ""
    ) -> None:
        self._write(f"{number:>4}  {loss:>7}   {losses:<30}{records:>11}  {seconds:>7}", style)


def _losses(losses: Sequence[float]) -> str:
    if len(losses) <= _SHOWN_ONE_BY_ONE:
        return "  ".join(f"{loss:.4f}" for loss in losses)
    return f"{min(losses):.4f} to {max(losses):.4f}"
