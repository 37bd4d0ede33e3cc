"""A run of a job: its events in the order of time, and its end."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from paddle_aws.storm.contents import OutputFile
from paddle_aws.storm.faults import Fault


@dataclass(frozen=True)
class Event:
    """One event of the program."""

    kind: str
    """As in `faults.EVENTS`."""
    seconds: float
    """Since the run's first process started."""
    attempt: int
    rank: int
    step: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The metrics in the line of a step."""
    path: str = ""
    """Of a file: below the attempt's output."""


@dataclass(frozen=True)
class InflictedFault:
    """A fault of the schedule, and its effect."""

    fault: Fault
    seconds: float | None
    """When it came; None: its event did not happen."""
    effect: str = ""
    """What it did, in a few words."""
    attempt: int = 0

    @property
    def what_it_did(self) -> str:
        return self.effect or "its event did not happen"


@dataclass
class Trace:
    """One run."""

    events: list[Event] = field(default_factory=list)
    inflicted: list[InflictedFault] = field(default_factory=list)
    succeeded: bool = False
    reason: str = ""
    """Why it did not succeed."""
    silent: bool = False
    """It was ended because nothing had happened for too long."""
    seconds: float = 0.0
    longest_silence: float = 0.0
    """Seconds in which no rank printed, opened or renamed anything, and no pod started."""
    last: Mapping[str, float] = field(default_factory=dict)
    """The numbers in the last line that the lowest rank printed with any, by their names or
    places; and the metric on held-out records, if the job measures one.
    """
    lines: list[str] = field(default_factory=list)
    """Lines of the pods and of the storm, with seconds, in the order of time."""
    stalled: dict[int, tuple[float, str | None]] = field(default_factory=dict)
    """Attempts that hung until they were ended: the time, and the rank that was silent first."""
    outside: list[str] = field(default_factory=list)
    """Files that the program wrote outside the volume and read again in a later attempt."""
    elsewhere: list[str] = field(default_factory=list)
    """Files that the program wrote outside the volume, which are lost with the pod."""
    servers: int = 0
    """Parameter servers that it began with."""
    files: Mapping[str, OutputFile] = field(default_factory=dict)
    """What it left below output/, by path."""

    @property
    def attempts(self) -> int:
        return max((event.attempt for event in self.events), default=0)

    @property
    def came(self) -> list[tuple[float, InflictedFault]]:
        """The faults whose events happened, with the times."""
        return [(fault.seconds, fault) for fault in self.inflicted if fault.seconds is not None]

    @property
    def ranks(self) -> list[int]:
        """The ranks that report steps."""
        return sorted({event.rank for event in self.events if event.kind == "step"})

    def add_step(self, event: Event) -> None:
        """Adds the event of a step. If two lines in a row report the same step of a rank, and one
        of them has no metrics, both belong to one step: "resuming at step 7", or the end of a pass.
        """
        for place in reversed(range(len(self.events))):
            other = self.events[place]
            if (other.kind, other.rank) == ("step", event.rank):
                same = (other.attempt, other.step) == (event.attempt, event.step)
                if same and not (event.metrics and other.metrics):
                    self.events[place] = replace(other, metrics=event.metrics or other.metrics)
                    return
                break
        self.events.append(event)

    def steps(self, rank: int | None = None) -> list[Event]:
        """The events of steps: of `rank`, or of the lowest rank that reports any."""
        if rank is None:
            rank = min(self.ranks, default=0)
        return [event for event in self.events if event.kind == "step" and event.rank == rank]
