"""What a run of a job did: its events in the order of time, and how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
    """What the line of a step tells besides its number."""
    path: str = ""
    """Of a file: below the attempt's output."""


@dataclass(frozen=True)
class InflictedFault:
    """A fault of the schedule, and what became of it."""

    fault: Fault
    seconds: float | None
    """When it came; None: its event did not happen."""
    effect: str = ""
    """What it did, in a few words."""
    attempt: int = 0


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
    """Attempts that hung until they were ended: when that was, and who had been silent first."""
    outside: list[str] = field(default_factory=list)
    """Files that the program wrote outside the volume and read again in a later attempt."""
    elsewhere: list[str] = field(default_factory=list)
    """Files that the program wrote outside the volume, which no volume keeps."""
    servers: int = 0
    """Parameter servers that it began with."""
    outputs: int = 0
    """Files that it left below output/."""

    @property
    def attempts(self) -> int:
        return max((event.attempt for event in self.events), default=0)

    @property
    def ranks(self) -> list[int]:
        """The ranks that tell steps."""
        return sorted({event.rank for event in self.events if event.kind == "step"})

    def add_step(self, event: Event) -> None:
        """Adds the event of a step. Of two lines in a row that tell a rank's same step, one of them
        without metrics, both are of one step: "resuming at step 7", or the end of a pass.
        """
        places = reversed(range(len(self.events)))
        newest = next((place for place in places if self._is_step(place, event.rank)), None)
        if newest is not None:
            other = self.events[newest]
            same = (other.attempt, other.step) == (event.attempt, event.step)
            if same and not (event.metrics and other.metrics):
                self.events[newest] = replace(other, metrics=event.metrics or other.metrics)
                return
        self.events.append(event)

    def _is_step(self, place: int, rank: int) -> bool:
        return self.events[place].kind == "step" and self.events[place].rank == rank

    def steps(self, rank: int | None = None) -> list[Event]:
        """The events of steps; of `rank` alone, or of the lowest rank that tells any."""
        if rank is None:
            rank = min(self.ranks, default=0)
        return [event for event in self.events if event.kind == "step" and event.rank == rank]
