"""What agents, trainers and the rendezvous server say to each other: typed messages, JSON objects, one a line.

Both sides prove that they know the run's secret before either believes a word (`proof`). It never travels; it lies in a file that
only this job's user may read.
"""

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import json
import secrets
import zlib
from dataclasses import dataclass
from typing import Any, Literal, dataclass_transform

from paddle_node import durable, typed
from paddle_node.contract import ExitCode, JobFolder
from paddle_node.failure import Failure

BEAT = 1.0
"""Seconds between two signs of life, in both directions."""
SILENCE = 6.0
"""Seconds without a sign of life after which the other side is lost. A closed connection is lost at once."""
HANDSHAKE = 5.0
"""Seconds in which a connection must have proved that it belongs to the run."""
FIRST = 4096
"""Bytes of a line before that."""
LONGEST = 16 * 1024 * 1024
"""Bytes of a line behind it."""
Ended = Literal["", "trained", "stopped"]
SERVERS, LEAVE = "servers", "leave"
"""Where trainers meet beside their own barriers."""


@dataclass_transform(frozen_default=True)
class Message:
    """Anything below: a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


# The handshake.


class Challenge(Message):
    """The server's first word on every connection."""

    nonce: str


class Hello(Message):
    """An agent's first word."""

    rank: int
    world_size: int
    incarnation: str
    """Which start of the agent this is."""
    membership: str
    """Equal on all pods that agree on who is who."""
    name: str
    node: str
    """The Kubernetes node; empty where the manifests do not tell it."""
    address: str


class Join(Message):
    """A trainer's first word."""

    rank: int
    attempt: int


class Proof(Message):
    """That the sender knows the secret."""

    nonce: str
    mac: str


class Welcome(Message):
    """The agent, or the trainer, is in."""


class Refused(Message):
    """The agent is not in. It ends with that code, or, where time can settle it, comes again (0)."""

    code: int
    sentence: str


# From an agent.


class Beat(Message):
    """A sign of life; also of the server, to a trainer that waits."""

    quiet: float | None = None
    """Seconds since a worker of an agent's pod last wrote output; None: none runs."""


class Report(Message):
    """All that it has to say of itself, whenever anything of that has changed."""

    attempt: int
    """The one that its workers are, or were last, in."""
    ready: bool
    """It has its data and program, and no worker of any attempt is left."""
    data: str
    program: str
    serving: bool
    silent: bool
    ended: Ended
    """All of its trainers ended with 0; all ended after they were told to stop."""
    leaving: bool


class Lost(Message):
    """A process ended that should not have."""

    attempt: int
    what: str
    code: int
    """The trainer's own exit code; 0: it says nothing of the program."""
    failed: bool
    """It ended by itself: it was not killed, and the volume was not full."""
    error: str
    """The exception behind it; empty: none was seen."""


class Fatal(Message):
    """The run cannot continue, whatever pod tries."""

    code: int
    sentence: str


# From the server to an agent.


class Status(Message):
    """A sign of life, and what the pod's health probe wants to know."""

    state: str
    where: str
    """Its trainer, in words; empty: there is none."""
    held: float
    """Seconds for which this pod itself has held it up."""


class PrepareAgain(Message):
    """Others have read other data, or another program."""


class Start(Message):
    """An attempt begins."""

    attempt: int
    resume: dict[str, str]
    addresses: str


class AllReached(Message):
    """The pservers of all pods listen; every trainer leaves, so that a pserver may end."""

    attempt: int
    what: Literal["serving", "left"]


class Stop(Message):
    """The trainers may save, then end."""

    attempt: int
    cause: str


class End(Message):
    """The attempt is over, for trainers, too: no process of it may stay."""

    attempt: int
    cause: str


class Finish(Message):
    """The run is over; the volume knows it already."""

    code: int
    sentence: str
    crashed: list[int] | None
    """The rank whose trainer's end ended the attempt, and that one's exit code."""


# From a trainer.


class Gather(Message):
    """Asks for an answer when every trainer has come with this name; with `SERVERS` when the pservers of all pods listen."""

    name: str
    value: Any


class Step(Message):
    """How far the trainer is in its pass; and its steps and seconds of the whole attempt, by what they went to."""

    number: int
    step: int
    steps: int
    spent: dict[str, float]


class Meeting(Message):
    """The trainer waits for the others without the server; an empty name: no longer."""

    name: str


# From the server to a trainer.


class Answer(Message):
    """To what the trainer asked; `values` by rank where it gathered."""

    values: list[Any] | None = None


FROM_AGENT = (Beat, Report, Lost, Fatal)
TO_AGENT = (Status, PrepareAgain, Start, AllReached, Stop, End, Finish)
FROM_TRAINER = (Gather, Step, Meeting)


def encode(message: Message) -> bytes:
    """One line."""
    return json.dumps({"kind": type(message).__name__, **vars(message)}, separators=(",", ":")).encode() + b"\n"


def parse(line: bytes, *expected: type[Message]) -> Any:
    """The message of that line. Raises ValueError where it is none of `expected`, or has other fields than that."""
    try:
        document = json.loads(line)
        kind = {each.__name__: each for each in expected}[document.pop("kind")]
        if document.keys() != kind.__annotations__.keys():
            raise ValueError
        return typed.read(kind, document, "it")
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ValueError(f"no {' or '.join(each.__name__ for each in expected)}: {line[:40]!r}") from None


async def receive(reader: asyncio.StreamReader, *expected: type[Message], longest: int = LONGEST) -> Any:
    """The next message; None when the connection is over, broken or talks something else."""
    try:
        return parse(await read_line(reader, longest), *expected)
    except (OSError, EOFError, ValueError):
        return None


async def read_line(reader: asyncio.StreamReader, longest: int) -> bytes:
    """However small the reader's own limit is. Raises ValueError for a longer one, EOFError at the end."""
    line = bytearray()
    while len(line) <= longest:
        try:
            return bytes(line + await reader.readuntil(b"\n"))
        except asyncio.LimitOverrunError as over:
            line += await reader.readexactly(over.consumed)
    raise ValueError(f"a line has more than {longest} bytes")


class Greeting:
    """A client's side of the handshake: its `lines` introduce it, and show that it knows `key`."""

    def __init__(self, key: str, hello: Hello | Join, challenge: Challenge) -> None:
        self._key, self._own, self._other = key, secrets.token_hex(16), challenge.nonce
        said = encode(hello)
        self.lines = said + encode(Proof(self._own, proof(key, self._own, self._other, said)))

    def proven_by(self, answer: Proof) -> bool:
        """Whether the server knows it, too."""
        return proven(self._key, self._own, self._other, answer.mac)


def proof(key: str, own: str, other: str, said: bytes = b"") -> str:
    """What shows that one knows `key`, beside both sides' nonces and what was said before."""
    return hmac.new(key.encode(), f"{own} {other} ".encode(errors="replace") + said, hashlib.sha256).hexdigest()


def proven(key: str, own: str, other: str, mac: str, said: bytes = b"") -> bool:
    """Whether `mac` is the other side's `proof`."""
    return hmac.compare_digest(proof(key, other, own, said).encode(), mac.encode(errors="replace"))  # Texts may be ASCII alone.


def attempt_key(secret: str, attempt: int) -> str:
    """The key of an attempt's trainers: what a process's environment shows later opens no door any more."""
    return hmac.new(secret.encode(), f"attempt {attempt}".encode(), hashlib.sha256).hexdigest()


def run_secret(folder: JobFolder, run_id: str) -> str:
    """The run's secret, made by whichever pod comes first. Blocking. Raises `Failure` where something else lies at its place."""
    path = folder.run_state / f"secret-{run_id}"
    folder.run_state.mkdir(parents=True, exist_ok=True)
    durable.look(folder.run_state)
    if not path.exists():
        durable.create(path, secrets.token_hex(32), mode=0o600)
    if path.is_symlink() or len(secret := path.read_bytes()) != 64:
        raise Failure(ExitCode.BAD_DATA, f"{path} is not the secret of this run, which its first pod made: start another run")
    return secret.decode(errors="replace")


def pack(addresses: list[str]) -> str:
    """All pods' addresses, of one family, as a short text: every agent gets all, so their size counts N times."""
    packed = [ipaddress.ip_address(address).packed for address in addresses]
    # The first bytes of all, which hardly differ, come first.
    columns = b"".join(map(bytes, zip(*packed, strict=True)))
    return base64.b64encode(bytes([len(packed[0])]) + zlib.compress(columns)).decode()


def unpack(text: str) -> list[str]:
    """What `pack` was given."""
    packed = base64.b64decode(text)
    columns = zlib.decompress(packed[1:])
    count = len(columns) // packed[0]
    return [str(ipaddress.ip_address(columns[i::count])) for i in range(count)]
