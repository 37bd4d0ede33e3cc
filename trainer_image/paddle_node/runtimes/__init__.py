"""What a kind of program means: its processes, its progress, when it is done, where it resumes.

A runtime is a file in this folder that sets `RUNTIME`; `by_name` knows it. It describes processes, and imports no Paddle: the
agent stays small.
"""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from paddle_node.contract import LONGEST_STRING, Variable
from paddle_node.environment import Attempt, NodeEnvironment
from paddle_node.failure import SettingError
from paddle_node.training.passes import Identity

Role = Literal["server", "trainer", "check"]


@dataclass(frozen=True)
class Process:
    """One process of this pod: it inherits nothing, and no shell starts it."""

    role: Role
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    log: Path
    working_directory: Path | None = None
    """Paddle writes into it; None: the agent's own."""
    ports: tuple[int, ...] = ()
    """A server's ports, which listen once it is ready."""
    health: str = ""
    """HTTP path that a server answers on its first port while it works; empty: there is none."""
    waits_for_servers: bool = False
    """Start it only when EVERY pod's servers listen; otherwise at once."""

    def __post_init__(self) -> None:
        # Paddle wants every peer's endpoint in one variable.
        words = [("an argument", word) for word in self.argv]
        for what, text in [*words, *((name, f"{name}={value}") for name, value in self.environ.items())]:
            if (length := len(os.fsencode(text))) > LONGEST_STRING:
                raise SettingError(
                    f"{what} of the {self.role} has {length} bytes: Linux starts no program with more than {LONGEST_STRING}, "
                    f"so a list of all peers has room for about 6,500; take fewer trainers with more threads each"
                )


@dataclass(frozen=True)
class Resumption:
    """What an attempt begins with."""

    resume: Mapping[str, str] = field(default_factory=dict)
    """What all pods hand to their processes, by names of the runtime's own."""
    description: str = "from the beginning"
    """The same for people, after the words "training starts"."""
    passed_over: tuple[str, ...] = ()
    """Newer ones that were damaged, or could not be loaded."""


@dataclass(frozen=True)
class History:
    """The run's earlier attempts, as far as the choice of what to resume from depends on them."""

    first: bool = True
    """No attempt of this run has begun yet."""
    without_progress: Sequence[Mapping[str, str]] = ()
    """What the failed attempts since the last progress resumed from, oldest first."""
    unloadable: Sequence[Mapping[str, str]] = ()
    """What at least two attempts that failed before their first step resumed from, and none that made a step."""


class Progress(Protocol):
    """A job's progress on the volume. Blocking; called in the pod of trainer 0 only, by one thread at a time."""

    trainers_join: bool
    """Every trainer calls `coordination.join`: one that ends with 0 without it has not trained."""

    def begin(self, identity: Identity, history: History) -> Resumption:
        """Chooses what the next attempt resumes from; it may remove what ended attempts left incomplete. May raise `Failure`."""

    def made(self, attempt: int, resumption: Resumption) -> str:
        """Names what an ended attempt completed beyond what it resumed from; empty: no progress."""

    def finished(self, identity: Identity, resumption: Resumption, stopped: bool) -> str | None:
        """When every trainer ended with 0, perhaps told to stop (`stopped`). None: the job is done; else what is missing."""

    def saved(self) -> float:
        """When something was saved last, in seconds since 1970; 0: never."""

    def changed(self) -> bool:
        """Whether there is progress since the last call."""


@dataclass(frozen=True)
class Runtime:
    """A kind of Paddle that can train a job."""

    processes: Callable[[NodeEnvironment, Sequence[str], Attempt], tuple[Process, ...]]
    """From all pods' addresses, by rank: this pod's processes in one attempt, servers first. Each trainer must end with 0."""
    progress: Callable[[NodeEnvironment, Callable[[str], None]], Progress]
    """Its second argument prints what people should know."""
    standby: Callable[[NodeEnvironment], tuple[Process, ...]] = lambda node: ()
    """Processes to start while peers are still missing, when the trainer id may be unknown.

    Each imports what is slow to import, then reads ONE line from its standard input, the JSON object
    {"argv": [...], "environ": {...}} of the `Process` of the same role, and becomes that process.
    """


def backend(node: NodeEnvironment) -> dict[str, str]:
    """Trainers without a GPU talk by gloo; else Paddle chooses."""
    return {} if node.own.gpus else {"PADDLE_DISTRI_BACKEND": "gloo"}


def by_name(name: str) -> Runtime:
    """The runtime that `name` means. Raises `SettingError` with the allowed names."""
    modules = {"collective": "collective", "fleet-ps": "fleet_ps", "launch": "launch", "paddle-0.x": "paddle_0x"}
    if name not in modules:
        raise SettingError(f"{Variable.RUNTIME} is {name!r}: allowed are {', '.join(modules)}")
    found: Runtime = importlib.import_module(f"{__name__}.{modules[name]}").RUNTIME
    return found
