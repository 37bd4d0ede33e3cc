"""The seam between the passes and the parameters: `Training` knows no Paddle, a backend knows no pass."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from paddle_node.coordination import Session

Sample = Mapping[str, Any]


class Backend(Protocol):
    """One trainer's access to the model of one attempt. The methods are in the order of their use."""

    lockstep: bool = False
    """Every trainer makes each step together with the others; otherwise each steps at its own pace."""
    answers: Sequence[str] = ()
    """Names of the program's classes, known after the first step; empty: its answers are numbers."""

    @abstractmethod
    def connect(self, session: Session) -> None:
        """All trainers: returns when all hold the same initial parameters."""

    @abstractmethod
    def load(self, directory: Path) -> None:
        """All trainers: the parameters of a verified pass."""

    @abstractmethod
    def step(self, samples: Sequence[Sample]) -> float:
        """Trains one batch; returns its mean loss. In lockstep `samples` may be empty, and the step is made all the same."""

    def any_stops(self, stop: bool) -> bool:
        """In lockstep: whether any trainer was told to stop, the same answer for all. Otherwise `stop`."""
        return stop

    def settle(self) -> None:
        """Returns when all that this trainer learned has arrived where `save` finds it."""
        return

    def settled(self, steps: int) -> None:
        """After every trainer's `settle`: how many steps all of them made since the last time."""
        return

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Trainer 0 only."""

    def check(self, directory: Path, names: Sequence[str]) -> None:
        """Raises `Failure` where one of the files of a save is not whole. Of each file in one trainer."""
        return

    @abstractmethod
    def export(self, directory: Path, target: Path) -> None:
        """Trainer 0 only: the pass in `directory` as a model for inference in `target`."""

    def close(self) -> None:
        """After every trainer's last call."""
        return
