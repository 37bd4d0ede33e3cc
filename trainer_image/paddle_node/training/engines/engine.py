"""What kind of Paddle does the work of a trainer: the seam between the passes and the parameters.

Promises: `Training` knows no Paddle, an engine knows no pass. In the order of their use.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from paddle_node.coordination import Session

Sample = Mapping[str, Any]


class Engine(Protocol):
    """One trainer's hold on the model of one attempt."""

    lockstep: bool
    """Every trainer makes each step together with the others; otherwise each goes on at its own pace."""
    answers: Sequence[str]
    """Names of the program's classes, known behind the first step; empty: its answers are numbers."""

    def connect(self, session: Session) -> None:
        """All trainers: returns when all hold the same initial parameters."""

    def load(self, directory: Path) -> None:
        """All trainers: the parameters of a verified pass."""

    def step(self, samples: Sequence[Sample]) -> float:
        """Trains one batch; returns its mean loss. In lockstep `samples` may be empty, and the step is made all the same."""

    def any_stops(self, stop: bool) -> bool:
        """In lockstep: whether any trainer was told to stop, the same answer for all. Otherwise: `stop`."""

    def settle(self) -> None:
        """Returns when all that this trainer learned has arrived where `save` will find it."""

    def settled(self, steps: int) -> None:
        """Behind a barrier after every trainer's `settle`: how many steps all of them made since the last time."""

    def save(self, directory: Path) -> None:
        """Trainer 0 only."""

    def export(self, directory: Path, target: Path) -> None:
        """Trainer 0 only: the pass in `directory` as a model for inference in `target`."""

    def close(self) -> None:
        """After every trainer's last call."""
