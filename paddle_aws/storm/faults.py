"""The faults of a storm: what kinds there are, and a run's schedule of them, drawn from a seed.

A fault is written `<kind>/<rank>@<event>`, such as `kill-rank/1@step-7`: when the job prints step
7, rank 1 is killed. The events are those of the program, so the same text means the same fault on
any machine.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from paddle_aws.operations.errors import BadInput

KINDS: Mapping[str, str] = {
    "kill-rank": "kill -9 of one rank's process",
    "kill-server": "kill -9 of the parameter server of one pod",
    "kill-agent": "kill -9 of the pod's first process: its container starts again in the pod",
    "kill-pod": "the pod is lost with all its processes, as with its node, and replaced",
    "spot-notice": "SIGTERM, the grace period, then the pod is replaced",
    "freeze-rank": "SIGSTOP of one rank, SIGCONT 3 seconds later",
    "freeze-server": "SIGSTOP of the parameter server of one pod, SIGCONT 3 seconds later",
    "freeze-pod": "SIGSTOP of all the pod's processes for 9 seconds: its peers declare it lost",
    "volume-full": "the next 3 files that the rank writes on the volume: no space left",
    "volume-slow": "the next 5 operations of the rank on the volume take 2 seconds each",
    "volume-failing": "the next 3 operations of the rank on the volume: I/O error",
    "volume-read-only": "the next 3 changes of the rank on the volume: read-only file system",
    "damage-checkpoint": "the newest checkpoint, if an older one lies beside it, loses its second "
    "half, and the rank is killed",
    "cut": "the rank's connections to other pods are closed under it",
    "half-open": "the rank's connections to other pods carry nothing more, and stay open",
}
"""Each kind, and what it does."""
LETHAL = (
    "kill-rank",
    "kill-agent",
    "kill-pod",
    "spot-notice",
    "freeze-pod",
    "damage-checkpoint",
    "cut",
)
"""Kinds that end an attempt: the next one begins and loads."""
FREEZES = {"freeze-rank": 3.0, "freeze-server": 3.0, "freeze-pod": 9.0}
"""Seconds."""
SERVERS = ("kill-server", "freeze-server")
"""Kinds whose rank is a parameter server's."""
VOLUME = {"volume-full": 3, "volume-slow": 5, "volume-failing": 3, "volume-read-only": 3}
"""How many operations each of them meets."""
EVENTS: Mapping[str, str] = {
    "start": "an attempt's first rank starts",
    "step": "a line reports this step, or a later one",
    "save": "this many files have been opened to be written below output/, and are still empty",
    "saved": "this many files have been written there",
    "load": "a rank opens a file that an earlier attempt saved",
    "end": "a rank has reported the last step, and exits",
}
COUNTED = ("step", "save", "saved")
"""Events that have a number."""
PER_RUN = 5
"""Faults that a run of a drawn storm has."""
_FAULT = re.compile(r"([a-z-]+)/(\d+)@([a-z]+)(?:-(\d+))?")


@dataclass(frozen=True)
class Fault:
    """A fault and its event."""

    kind: str
    rank: int
    event: str
    number: int = 0
    """For a counted event its number, from 1; for `step` the step that the program reports."""

    def __str__(self) -> str:
        number = f"-{self.number}" if self.event in COUNTED else ""
        return f"{self.kind}/{self.rank}@{self.event}{number}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads what `str` writes. Raises BadInput."""
        match = _FAULT.fullmatch(text)
        if match is None:
            raise BadInput(
                f"--faults has {text!r}: a kind, such as kill-rank, or a whole fault, such as "
                "kill-rank/1@step-7, is needed"
            )
        kind, rank, event, number = match.groups()
        for word, allowed, what in ((kind, KINDS, "kind"), (event, EVENTS, "event")):
            if word not in allowed:
                raise BadInput(
                    f"--faults has {text!r}: {word} is no {what}; {', '.join(allowed)} are allowed"
                )
        if (event in COUNTED) != (number is not None):
            needs = "a number, such as" if event in COUNTED else "no number:"
            example = f"{event}-1" if event in COUNTED else event
            raise BadInput(f"--faults has {text!r}: the event {event} has {needs} {example}")
        if event in ("save", "saved") and int(number) == 0:
            raise BadInput(f"--faults has {text!r}: the first {event} is {event}-1")
        return cls(kind, int(rank), event, int(number or 0))


@dataclass(frozen=True)
class Opportunities:
    """The events of the calm runs to which faults can be tied."""

    ranks: int
    steps: Sequence[int] = ()
    """The steps that the program reports, in order."""
    saves: int = 0
    """Files that it writes below output/."""
    savers: Sequence[int] = ()
    """Ranks that write them."""
    servers: int = 0
    """Parameter servers."""


def draw(seed: int, run: int, kinds: Sequence[str], chances: Opportunities) -> tuple[Fault, ...]:
    """Returns run number `run`'s schedule: the same for the same seed, kinds and calm runs."""
    dice = random.Random(f"{seed} {run}")
    kinds = [kind for kind in kinds if kind not in SERVERS or chances.servers]
    moments = sorted(dice.random() for _ in range(PER_RUN))
    faults: list[Fault] = []
    for place, moment in enumerate(moments):
        kind = dice.choice(kinds)
        again = place > 0 and chances.saves > 0 and faults[-1].kind in LETHAL
        events = ["start"] * (place == 0) + ["load"] * again
        events += ["step"] * 3 * bool(chances.steps) + ["save", "saved"] * bool(chances.saves)
        events += ["end"] * (place == PER_RUN - 1 and bool(chances.steps))
        event = dice.choice(events or ["start"])
        if kind == "damage-checkpoint" and chances.saves:
            event = "saved"
        rank = dice.randrange(chances.servers if kind in SERVERS else chances.ranks)
        if kind in VOLUME and chances.savers:
            rank = dice.choice(chances.savers)
        number = 0
        if event == "step":
            number = chances.steps[int(moment * len(chances.steps))]
        elif event in COUNTED:
            number = 1 + int(moment * chances.saves)
        faults.append(Fault(kind, rank, event, number))
    return tuple(faults)
