"""Where the time of a run's pods goes: into training that was kept, waiting, starting, data, saving
and losses. Pure.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from paddle_node.rendezvous.trainers import Trainers
from paddle_node.training.step_log import DATA, KEPT, PARTS, SAVING, SLOWEST, TRAINING

WAITING, STARTING, LOST = "waiting", "starting", "lost"
ALL = (WAITING, STARTING, DATA, TRAINING, SAVING, SLOWEST, LOST)
"""In this order: waiting for pods; from an attempt's start to its first step; reading records;
training that was kept; saving; waiting for the slowest trainer; reading and training that had to be
repeated.
"""


@dataclass
class Goodput:
    """The goodput of one run by its rendezvous server's clock, as the mean over its pods."""

    counted: bool
    """The trainers report where their time goes."""
    seconds: Counter[str]
    """Seconds by category, over the attempts that have ended."""
    idle: float
    """When the time without an attempt began."""
    begun: float = field(default=0.0, init=False)
    """When the present attempt began."""

    def attempt(self, trainers: Trainers, now: float, done: bool) -> dict[str, float]:
        """Returns the present attempt's seconds. `done`: none can be lost. Uncounted time counts as
        lost until more is known.
        """
        waiting, rest = {WAITING: self.begun - self.idle}, now - self.begun
        if not self.counted:
            return waiting | {TRAINING if done else LOST: rest}
        reported = {part: trainers.spent(part) for part in PARTS}
        kept = {} if done else {part: trainers.spent(name) for name, part in KEPT.items()}
        lost = sum(reported[part] - seconds for part, seconds in kept.items())
        return (
            waiting
            | {STARTING: max(rest - sum(reported.values()), 0.0)}
            | reported
            | kept
            | {LOST: lost}
        )

    def end(self, trainers: Trainers, now: float, done: bool) -> dict[str, float]:
        """Ends the present attempt and returns its seconds, as `attempt` does."""
        seconds = self.attempt(trainers, now, done)
        self.seconds.update(seconds)
        self.idle = now
        return seconds


def sentence(seconds: Mapping[str, float], slow: Collection[str] = ()) -> str:
    """Returns the goodput as a sentence for trainer 0's log, where `paddle-aws status` looks for
    it.
    """
    whole = sum(seconds.values())
    parts = ", ".join(
        f"{seconds[part]:.0f} {part}" for part in ALL if seconds.get(part, 0.0) >= 0.5
    )
    share = seconds.get(TRAINING, 0.0) / whole if whole else 0.0
    return f"goodput {share:.0%} of {whole:.0f} s: {parts or 'nothing yet'}" + (
        f"; slow: {', '.join(slow)}" if slow else ""
    )
