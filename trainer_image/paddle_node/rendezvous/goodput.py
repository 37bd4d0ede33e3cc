"""Where the time of a run's pods goes: training that was kept, and what waiting, starting, data, saving and losses took. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from paddle_node.rendezvous.trainers import Trainers
from paddle_node.training.step_log import DATA, KEPT, PARTS, SAVING, SLOWEST, TRAINING

WAITING, STARTING, LOST = "waiting", "starting", "lost"
ALL = (WAITING, STARTING, DATA, TRAINING, SAVING, SLOWEST, LOST)
"""Waiting for pods; from an attempt's start to its first step; reading records; training that was kept; saving; waiting for the
slowest trainer; reading and training that had to be done again."""


@dataclass
class Goodput:
    """Of one run, by its rendezvous server's clock; the mean over its pods."""

    counted: bool
    """The trainers tell where their time goes."""
    seconds: Counter[str]
    """Of attempts that have ended."""
    idle: float
    """Since when no attempt runs."""
    begun: float = field(default=0.0, init=False)
    """Since when the present attempt runs."""

    def attempt(self, trainers: Trainers, now: float, done: bool) -> dict[str, float]:
        """Of the present attempt; `done`: nothing of it can be lost. What nobody counted is lost, until somebody knows more."""
        waiting, rest = {WAITING: self.begun - self.idle}, now - self.begun
        if not self.counted:
            return waiting | {TRAINING if done else LOST: rest}
        told = {part: trainers.spent(part) for part in PARTS}
        kept = {} if done else {part: trainers.spent(name) for name, part in KEPT.items()}
        lost = sum(told[part] - seconds for part, seconds in kept.items())
        return waiting | {STARTING: max(rest - sum(told.values()), 0.0)} | told | kept | {LOST: lost}

    def end(self, trainers: Trainers, now: float, done: bool) -> dict[str, float]:
        """The same, and from now on none runs."""
        found = self.attempt(trainers, now, done)
        self.seconds.update(found)
        self.idle = now
        return found


def sentence(seconds: Mapping[str, float], slow: Collection[str] = ()) -> str:
    """For trainer 0's log, in which `paddle-aws status` looks for it."""
    whole = sum(seconds.values())
    parts = ", ".join(f"{seconds[part]:.0f} {part}" for part in ALL if seconds.get(part, 0.0) >= 0.5)
    share = seconds.get(TRAINING, 0.0) / whole if whole else 0.0
    return f"goodput {share:.0%} of {whole:.0f} s: {parts or 'nothing yet'}" + (f"; slow: {', '.join(slow)}" if slow else "")
