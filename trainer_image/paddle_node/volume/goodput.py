"""How a job's pods spend their time, and the share that was training that was kept.

Agent 0 reports it in its log, as a sentence for people with the same as JSON behind it for tools.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

WAITING, STARTING, LOST = "waiting", "starting", "lost"
DATA, TRAINING, SAVING, SLOWEST = "data", "training", "saving", "slowest"
ALL = (WAITING, STARTING, DATA, TRAINING, SAVING, SLOWEST, LOST)
"""In this order: waiting for pods, starting (until an attempt's first step), reading records,
training that was kept, saving, waiting for the slowest trainer, and reading and training that had
to be repeated.
"""
PARTS = (DATA, TRAINING, SAVING, SLOWEST)
"""Where a trainer's seconds go."""
KEPT = {"kept_data": DATA, "kept_training": TRAINING}
"""Maps the name of each kept time to the part whose seconds a save secures."""
_JSON = '  {"goodput": '


@dataclass(frozen=True)
class Goodput:
    """A job's goodput, over all its attempts and runs.

    >>> goodput = Goodput({"waiting": 10.0, "training": 30.0})
    >>> str(goodput)
    'goodput 75% of 40 s: 10 waiting, 30 training'
    >>> Goodput.parse(f"[agent 0] {goodput.line()}") == goodput
    True
    """

    seconds: Mapping[str, float]
    """Mean seconds per pod, by part."""
    slow: tuple[str, ...] = field(default=())
    """The slow trainers, with their nodes, in words."""

    @classmethod
    def total_of(cls, parts: Iterable[Mapping[str, float]]) -> Self:
        """Returns the goodput of several attempts together."""
        totals: Counter[str] = Counter()
        for seconds in parts:
            totals.update(seconds)
        return cls(totals)

    @property
    def total(self) -> float:
        """Seconds per pod of all parts."""
        return sum(self.seconds.values())

    @property
    def share(self) -> float:
        """The share of training that was kept, from 0 to 1."""
        return self.seconds.get(TRAINING, 0.0) / self.total if self.total else 0.0

    @property
    def parts(self) -> str:
        """The parts that took at least half a second, in words."""
        shown = [part for part in ALL if self.seconds.get(part, 0.0) >= 0.5]
        return ", ".join(f"{self.seconds[part]:.0f} {part}" for part in shown) or "nothing yet"

    def __str__(self) -> str:
        slow = f"; slow: {', '.join(self.slow)}" if self.slow else ""
        return f"goodput {self.share:.0%} of {self.total:.0f} s: {self.parts}{slow}"

    def line(self) -> str:
        """Returns the line for agent 0's log."""
        seconds = {part: round(spent, 1) for part, spent in self.seconds.items()}
        return f"{self}{_JSON}{json.dumps({'seconds': seconds, 'slow': self.slow})}}}"

    @classmethod
    def parse(cls, line: str) -> Self | None:
        """Returns what agent 0 reported; None if its log's line reports no goodput."""
        if not line.startswith("[agent 0] goodput "):
            return None
        try:
            document = json.loads(line[line.index(_JSON) :])["goodput"]
            seconds = {str(part): float(spent) for part, spent in document["seconds"].items()}
            slow = tuple(map(str, document["slow"]))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None
        return cls(seconds, slow) if all(map(math.isfinite, seconds.values())) else None
