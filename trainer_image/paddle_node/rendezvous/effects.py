"""The effects of an event of the rendezvous, which its server carries out."""

from collections.abc import Mapping
from typing import Any

from paddle_node.rendezvous.attempt_end import AttemptEnd
from paddle_node.rendezvous.messages import Message
from paddle_node.runtimes import NO_SCRATCH, Scratch
from paddle_node.typed import Frozen
from paddle_node.volume.attempts import Outcome
from paddle_node.volume.passes import Identity


class Send(Frozen):
    """A message for agents or trainers."""

    message: Message
    connections: tuple[Any, ...]


class Close(Frozen):
    """A connection is to be closed, after what was already sent."""

    connection: Any


class Say(Frozen):
    """A line for people."""

    text: str


# Questions to the volume, which answers each with an event.


class Begin(Frozen):
    """Begin the next attempt: which number has it, and what does it resume from?"""

    identity: Identity
    scratch: Scratch = NO_SCRATCH


class RecordEnd(Frozen):
    """Record how the attempt ended: is another one allowed?"""

    ending: AttemptEnd
    scratch: Scratch = NO_SCRATCH


class Publish(Frozen):
    """All pods have copied their parts of a checkpoint: make it one, and remove what the program
    has deleted.
    """

    attempt: int
    key: str
    name: str
    parts: tuple[Mapping[str, tuple[int, str]], ...] | None
    changed: int
    gone: tuple[str, ...]


class Conclude(Frozen):
    """Every trainer exited with 0: is anything missing for the job to be done? `stopped`: they were
    told to stop.
    """

    attempt: int
    stopped: bool


class RecordOutcome(Frozen):
    """Record how the run ended, and how its attempt did if that is not recorded yet."""

    outcome: Outcome
    ending: AttemptEnd | None


Question = Begin | RecordEnd | Publish | Conclude | RecordOutcome
Effect = Send | Close | Say | Question
