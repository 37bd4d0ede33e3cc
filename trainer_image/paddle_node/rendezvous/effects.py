"""The effects of an event of the rendezvous, which its server carries out."""

from dataclasses import dataclass
from typing import Any

from paddle_node.rendezvous.attempt_end import AttemptEnd
from paddle_node.rendezvous.messages import Message
from paddle_node.volume.attempts import Outcome
from paddle_node.volume.passes import Identity


@dataclass(frozen=True)
class Send:
    """A message for agents or trainers."""

    message: Message
    connections: tuple[Any, ...]


@dataclass(frozen=True)
class Close:
    """A connection is to be closed, after what was already sent."""

    connection: Any


@dataclass(frozen=True)
class Say:
    """A line for people."""

    text: str


# Questions to the volume, which answers each with an event.


@dataclass(frozen=True)
class Begin:
    """Begin the next attempt: which number has it, and what does it resume from?"""

    identity: Identity


@dataclass(frozen=True)
class RecordEnd:
    """Record how the attempt ended: is another one allowed?"""

    ending: AttemptEnd


@dataclass(frozen=True)
class Conclude:
    """Every trainer exited with 0: is anything missing for the job to be done? `stopped`: they were
    told to stop.
    """

    attempt: int
    stopped: bool


@dataclass(frozen=True)
class RecordOutcome:
    """Record how the run ended, and how its attempt did if that is not recorded yet."""

    outcome: Outcome
    ending: AttemptEnd | None


Question = Begin | RecordEnd | Conclude | RecordOutcome
Effect = Send | Close | Say | Question
