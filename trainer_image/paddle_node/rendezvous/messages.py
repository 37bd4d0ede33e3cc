"""The messages between agents, trainers and the rendezvous server: typed JSON objects, one per
line.

`handshake` opens every connection.
"""

import asyncio
import base64
import ipaddress
import json
import zlib
from dataclasses import field
from typing import Any, Literal

from paddle_node import typed

LINE_BYTES = 16 * 1024 * 1024
"""Longest line in bytes after the handshake."""
Ended = Literal["", "trained", "stopped"]
SERVERS, LEAVE = "servers", "leave"
"""Where trainers meet besides their own barriers."""


class Message(typed.Frozen):
    """Base class of every message below."""


# The handshake.


class Challenge(Message):
    """The server's first message on every connection."""

    nonce: str


class Hello(Message):
    """An agent's first message."""

    rank: int
    world_size: int
    incarnation: str
    """Identifies this start of the agent."""
    membership: str
    """Equal on all pods that agree on which pod has which rank."""
    name: str
    node: str
    """The Kubernetes node; empty if the manifests do not pass it."""
    address: str


class Join(Message):
    """A trainer's first message."""

    rank: int
    attempt: int


class Proof(Message):
    """Proves that the sender knows the secret."""

    nonce: str
    mac: str


class Welcome(Message):
    """The server admits the agent or the trainer."""


class Refused(Message):
    """The server refuses the agent. The agent ends with that code, or tries again if the code is 0,
    because the cause may resolve itself.
    """

    code: int
    sentence: str


# From an agent.


class Beat(Message):
    """A sign of life; the server, too, sends it to a trainer that waits."""

    quiet: float | None = None
    """Seconds since any worker of the agent's pod last wrote output; None: none runs."""
    silent: float | None = None
    """Seconds without output of the trainer of the pod that wrote none for the longest time."""


class Report(Message):
    """The agent's full state, sent whenever any part of it changes."""

    attempt: int
    """The attempt that its workers are in, or were last in."""
    gone: bool
    """No worker of any attempt is left."""
    ready: bool
    """Besides, the pod has its data and program, and its node is fit."""
    data: str
    program: str
    serving: bool
    silent: bool
    ended: Ended
    """trained: all its trainers ended with 0; stopped: all ended after a SIGTERM."""
    leaving: bool
    doubt: str = ""
    """What went wrong beside the training, or what nobody could see, of trainers that are done."""
    place: str = ""
    """Where its trainers were when the attempt ended after a long silence; empty: unknown."""


class Part(typed.Frozen):
    """What a pod has of a checkpoint."""

    changed: int
    """When it was last changed, in nanoseconds."""
    files: dict[str, tuple[int, str]]
    """Bytes and checksum of each."""


class Saves(Message):
    """The checkpoints on a pod's scratch, with `checkpoints: local`; sent whenever they change."""

    attempt: int
    """The attempt that wrote them; 0: the scratch has none that counts."""
    final: bool
    """No process of that attempt is left in the pod: nothing more comes."""
    parts: dict[str, Part | None]
    """By the checkpoint's name; None: it is being written."""
    copied: str = ""
    """The last `Copy.key` that is on the volume."""
    failed: str = ""
    """The last `Copy.key` that is not going to be."""
    full: str = ""
    """Why the scratch has no room for another checkpoint; empty: it has."""


class Lost(Message):
    """A process ended unexpectedly."""

    attempt: int
    what: str
    code: int = 0
    """Its exit code, 128 + the signal's number if a signal ended it; 0: no code says why."""
    trainer: bool = False
    """It was a trainer: its code is the program's own."""
    error: str = ""
    """The last exception on its log; empty: none was seen."""
    uncaught: bool = False
    """It exited with nothing behind that exception on its log."""
    stepped: bool | None = None
    """It was seen to make a step; False: it was seen to make none; None: nobody can know."""
    ago: float = 0.0
    """Seconds since it ended."""
    silent: float = 0.0
    """Seconds for which it had written nothing before it ended, its last words apart."""


class Fatal(Message):
    """The run cannot continue, no matter which pod tries."""

    code: int
    sentence: str


# From the server to an agent.


class Status(Message):
    """A sign of life, with what the pod's health probe needs to know."""

    state: str
    where: str
    """Where the pod's trainer is, in words; empty: there is none."""
    held: float
    """Seconds for which this pod itself has held its trainer up."""


class PrepareAgain(Message):
    """Asks an agent to prepare again: not all agents have read the same data and program."""


class Start(Message):
    """An attempt begins."""

    attempt: int
    resumed: dict[str, str]
    addresses: str
    local: bool = False
    """Its commands write to their pods' scratch."""
    bring: bool = False
    """What is resumed from is on the volume: a pod takes from there what its scratch lacks."""
    earlier: int = 0
    """The attempt from whose scratch a pod may take files."""
    kept: list[str] = field(default_factory=list)
    """The checkpoints that it may take from there."""


class Copy(Message):
    """Asks each pod to copy its part of a checkpoint to the volume."""

    attempt: int
    key: str
    name: str
    """Empty: whatever the pod's output has besides `published`."""
    published: list[str]


class AllReached(Message):
    """serving: the pservers of all pods listen; left: every trainer is leaving, so a pserver may
    end.
    """

    attempt: int
    what: Literal["serving", "left"]


class Stop(Message):
    """The trainers may save, then end."""

    attempt: int
    cause: str


class End(Message):
    """The attempt is over, also for trainers: all its processes must end."""

    attempt: int
    cause: str


class Finish(Message):
    """The run is over; an outcome that lasts is already on the volume."""

    code: int
    sentence: str
    crashed: list[int] | None
    """The rank and exit code of the trainer whose end ended the attempt."""


# From a trainer.


class Gather(Message):
    """Asks for an answer once every trainer has sent this name, or, for `SERVERS`, once the
    pservers of all pods listen.
    """

    name: str
    value: Any


class Step(Message):
    """How far the trainer is in its pass, and its steps in the whole attempt, with the seconds that
    it spent by category.
    """

    number: int
    step: int
    steps: int
    spent: dict[str, float]


class Meeting(Message):
    """The trainer waits for the others without the server; an empty name: it no longer waits."""

    name: str


# From the server to a trainer.


class Answer(Message):
    """Answers the trainer's request; `values` are by rank if it gathered."""

    values: list[Any] | None = None


FROM_AGENT = (Beat, Report, Saves, Lost, Fatal)
TO_AGENT = (Status, PrepareAgain, Start, Copy, AllReached, Stop, End, Finish)
FROM_TRAINER = (Gather, Step, Meeting)


def encode(message: Message) -> bytes:
    """Returns the message as one line."""
    return (
        json.dumps(
            {"kind": type(message).__name__, **vars(message)},
            separators=(",", ":"),
            default=vars,
        ).encode()
        + b"\n"
    )


def parse(line: bytes, *expected: type[Message]) -> Any:
    """Returns the message of a line. Raises ValueError if it is none of `expected` or does not have
    exactly its fields.
    """
    try:
        document = json.loads(line)
        kind = {kind_.__name__: kind_ for kind_ in expected}[document.pop("kind")]
        if document.keys() != kind.__annotations__.keys():
            raise ValueError
        return typed.read(kind, document, "it")
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ValueError(
            f"no {' or '.join(kind_.__name__ for kind_ in expected)}: {line[:40]!r}"
        ) from None


async def receive(reader: asyncio.StreamReader, *expected: type[Message]) -> Any:
    """Returns the next message; None if the connection is closed or broken, or sends anything
    else.
    """
    try:
        return parse(await read_line(reader, LINE_BYTES), *expected)
    except (OSError, EOFError, ValueError):
        return None


async def read_line(reader: asyncio.StreamReader, longest: int) -> bytes:
    """Reads a line, however small the reader's own limit is. Raises ValueError above `longest`
    bytes, EOFError at the end.
    """
    line = bytearray()
    while len(line) <= longest:
        try:
            return bytes(line + await reader.readuntil(b"\n"))
        except asyncio.LimitOverrunError as over:
            line += await reader.readexactly(over.consumed)
    raise ValueError(f"a line has more than {longest} bytes")


def pack(addresses: list[str]) -> str:
    """Packs all pods' addresses, of one family, into a short text: every agent gets all, so their
    size counts N times.
    """
    packed = [ipaddress.ip_address(address).packed for address in addresses]
    # The first bytes of all addresses, which hardly differ, come first.
    columns = b"".join(map(bytes, zip(*packed, strict=True)))
    return base64.b64encode(bytes([len(packed[0])]) + zlib.compress(columns)).decode()


def unpack(text: str) -> list[str]:
    """Returns the addresses that `pack` packed."""
    packed = base64.b64decode(text)
    columns = zlib.decompress(packed[1:])
    count = len(columns) // packed[0]
    return [str(ipaddress.ip_address(columns[i::count])) for i in range(count)]
