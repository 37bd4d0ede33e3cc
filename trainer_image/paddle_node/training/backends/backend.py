"""The interface between the passes and the parameters: `Training` does not know Paddle, a backend
does not know passes.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from paddle_node.coordination import Session

Sample = Mapping[str, Any]


class Backend(Protocol):
    """One trainer's access to the model of one attempt. The methods appear in the order of their
    use.
    """

    lockstep: bool = False
    """Whether all trainers make each step together; otherwise each trainer steps at its own
    pace.
    """
    answers: Sequence[str] = ()
    """Names of the program's classes, known after the first step; empty: its answers are
    numbers.
    """

    @abstractmethod
    def connect(self, session: Session) -> None:
        """Called in all trainers. Returns when all of them hold the same initial parameters."""

    @abstractmethod
    def load(self, directory: Path) -> None:
        """Called in all trainers. Loads the parameters of a verified pass."""

    def seed(self, seed: int) -> None:
        """Called before each step. Seeds the framework's random numbers: those of dropout."""
        return

    @abstractmethod
    def step(self, samples: Sequence[Sample]) -> float:
        """Trains one batch and returns its mean loss. In lockstep, `samples` may be empty, and the
        step is made all the same.
        """

    def any_stops(self, stop: bool) -> bool:
        """In lockstep, returns whether `stop` is true in any trainer, the same answer in all.
        Otherwise returns `stop`.
        """
        return stop

    def settle(self) -> None:
        """Returns when everything that this trainer learned has arrived where `save` finds it."""
        return

    def finish_steps(self, steps: int) -> None:
        """Called after every trainer's `settle`, with the steps that all trainers made since the
        previous call.
        """
        return

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Called in trainer 0 only. Saves the model in `directory`."""

    def check(self, directory: Path, names: Sequence[str]) -> None:
        """Raises `Failure` if one of a save's files is not whole. Each file is checked in one
        trainer.
        """
        return

    @abstractmethod
    def export(self, directory: Path, target: Path) -> None:
        """Called in trainer 0 only. Exports the pass in `directory` to `target` as a model for
        inference.
        """

    def close(self) -> None:
        """Called after every trainer's last call."""
        return
