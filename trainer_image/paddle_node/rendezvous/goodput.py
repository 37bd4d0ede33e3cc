"""Accounts for the time of a run's pods, by the rendezvous server's clock. Pure."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from paddle_node.rendezvous.trainers import Trainers
from paddle_node.volume.attempts import RecordedAttempt
from paddle_node.volume.goodput import LOST, STARTING, TRAINING, WAITING


@dataclass
class Stopwatch:
    """The seconds of one run, as the mean over its pods."""

    seconds: Counter[str]
    """Seconds by part, over the attempts that have ended."""
    idle: float
    """When the time without an attempt began."""
    begun: float = field(default=0.0, init=False)
    """When the present attempt began."""

    def read(self, trainers: Trainers, now: float, done: bool) -> dict[str, float]:
        """Returns the present attempt's seconds. `done`: none can be lost."""
        waiting = {WAITING: self.begun - self.idle}
        return waiting | trainers.measure(now - self.begun, done)

    def stop(self, trainers: Trainers, now: float, done: bool) -> dict[str, float]:
        """Ends the present attempt and returns its seconds, as `read` does."""
        seconds = self.read(trainers, now, done)
        self.seconds.update(seconds)
        self.idle = now
        return seconds


def split_seconds(
    seconds: Mapping[str, float],
    attempt: RecordedAttempt,
    ended: float,
    first_metrics: float,
    saved: float,
) -> dict[str, float]:
    """Returns the seconds of an attempt that ended. Of uncounted ones, those before the first
    metrics were starting, and those until the last save training that was kept.

    `seconds`: by the stopwatch, empty if its pod was lost. `ended`, `first_metrics` and `saved`:
    seconds since 1970, 0 for never.
    """
    if STARTING in seconds:
        return dict(seconds)
    if seconds.get(TRAINING):  # It is done.
        saved = math.inf
    begun = attempt.started
    uncounted = seconds.get(TRAINING, 0.0) + seconds.get(LOST, 0.0) or ended - begun
    starting = min(max(first_metrics - begun, 0.0), uncounted)
    kept = min(max(saved - begun, starting), uncounted) - starting
    return dict(seconds) | {STARTING: starting, TRAINING: kept, LOST: uncounted - starting - kept}
