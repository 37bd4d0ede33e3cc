"""The events of a rendezvous."""

from collections.abc import Mapping

from paddle_node.rendezvous.messages import Hello, Join, Message
from paddle_node.rendezvous.policy import Facts
from paddle_node.runtimes import Resumption
from paddle_node.typed import Frozen
from paddle_node.volume.attempts import Outcome


class Event(Frozen):
    """Base class of every event below."""


# On connections, each of which has proved that it belongs to this run.


class AgentCame(Event):
    """An agent introduces itself."""

    hello: Hello
    connection: object


class AgentSent(Event):
    """An agent sent a message."""

    rank: int
    connection: object
    message: Message


class AgentLeft(Event):
    """An agent's connection is closed."""

    rank: int
    connection: object


class TrainerCame(Event):
    """A trainer introduces itself."""

    join: Join
    connection: object


class TrainerSent(Event):
    """A trainer sent a message."""

    rank: int
    connection: object
    message: Message


# What the volume answers.


class AttemptBegun(Event):
    """The next attempt has this number, and resumes from that."""

    number: int
    resumption: Resumption


class EndRecorded(Event):
    """`facts`: what decides whether another attempt follows. `seconds`: where the time of all
    attempts went; the volume knows better what was kept.
    """

    facts: Facts
    seconds: Mapping[str, float]


class Published(Event):
    """A checkpoint is on the volume; `fault`: why it is not."""

    key: str
    fault: str


class Concluded(Event):
    """`missing`: what is missing for the job to be done; None: nothing. `progress`: what the
    attempt completed.
    """

    attempt: int
    missing: str | None
    progress: str


class OutcomeRecorded(Event):
    """The run's outcome is on the volume, or cannot be."""

    outcome: Outcome


class JobOver(Event):
    """The job ends, and with it the attempt: no attempt is allowed, or the volume gives up."""

    outcome: Outcome


class Progressed(Event):
    """The program wrote something, though no trainer reports a step."""


# Of the server itself.


class Ticked(Event):
    """A `heartbeat.INTERVAL` has passed. `late`: this process itself paused, so silence does not
    count as a loss.
    """

    late: bool


class Closing(Event):
    """The server leaves: the end of an attempt that is ending has to be recorded now."""
