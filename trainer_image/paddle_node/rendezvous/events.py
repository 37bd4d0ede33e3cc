"""The events of a rendezvous."""

from collections.abc import Mapping
from dataclasses import dataclass

from paddle_node.rendezvous.messages import Hello, Join, Message
from paddle_node.rendezvous.policy import Facts
from paddle_node.runtimes import Resumption
from paddle_node.volume.attempts import Outcome

# On connections, each of which has proved that it belongs to this run.


@dataclass(frozen=True)
class AgentCame:
    """An agent introduces itself."""

    hello: Hello
    connection: object


@dataclass(frozen=True)
class AgentSent:
    """An agent sent a message."""

    rank: int
    connection: object
    message: Message


@dataclass(frozen=True)
class AgentLeft:
    """An agent's connection is closed."""

    rank: int
    connection: object


@dataclass(frozen=True)
class TrainerCame:
    """A trainer introduces itself."""

    join: Join
    connection: object


@dataclass(frozen=True)
class TrainerSent:
    """A trainer sent a message."""

    rank: int
    connection: object
    message: Message


# What the volume answers.


@dataclass(frozen=True)
class AttemptBegun:
    """The next attempt has this number, and resumes from that."""

    number: int
    resumption: Resumption


@dataclass(frozen=True)
class EndRecorded:
    """`facts`: what decides whether another attempt follows. `seconds`: where the time of all
    attempts went; the volume knows better what was kept.
    """

    facts: Facts
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Concluded:
    """`missing`: what is missing for the job to be done; None: nothing. `progress`: what the
    attempt completed.
    """

    attempt: int
    missing: str | None
    progress: str


@dataclass(frozen=True)
class OutcomeRecorded:
    """The run's outcome is on the volume, or cannot be."""

    outcome: Outcome


@dataclass(frozen=True)
class JobOver:
    """The job ends, and with it the attempt: no attempt is allowed, or the volume gives up."""

    outcome: Outcome


@dataclass(frozen=True)
class Progressed:
    """The program wrote something, though no trainer reports a step."""


# Of the server itself.


@dataclass(frozen=True)
class Ticked:
    """A `heartbeat.INTERVAL` has passed. `late`: this process itself paused, so silence does not
    count as a loss.
    """

    late: bool


@dataclass(frozen=True)
class Closing:
    """The server leaves: the end of an attempt that is ending has to be recorded now."""


Event = (
    AgentCame
    | AgentSent
    | AgentLeft
    | TrainerCame
    | TrainerSent
    | AttemptBegun
    | EndRecorded
    | Concluded
    | OutcomeRecorded
    | JobOver
    | Progressed
    | Ticked
    | Closing
)
