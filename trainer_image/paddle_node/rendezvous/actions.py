"""What the rendezvous has its server do."""

from dataclasses import dataclass
from typing import Any, Literal

from paddle_node.rendezvous.messages import Message

Question = Literal["begin", "record_end", "conclude", "record_outcome"]


@dataclass(frozen=True)
class Say:
    """A line of the pod's log."""

    text: str


@dataclass(frozen=True)
class Send:
    """To an agent or a trainer."""

    connection: object
    message: Message


@dataclass(frozen=True)
class Close:
    """The connection, behind what was sent."""

    connection: object


@dataclass(frozen=True)
class Ask:
    """Has the volume do something that it takes a while to answer: the `Volume`'s method of that name, with `about`."""

    what: Question
    about: tuple[Any, ...]


Action = Say | Send | Close | Ask
