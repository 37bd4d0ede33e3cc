"""What a runtime is: the one place that knows which programs make a training job of one kind of Paddle.

Promises: a runtime only describes processes; it starts none, reads no file and imports no Paddle, so that
the agent stays small and quick. A runtime is one file in this folder that sets `RUNTIME`; nothing else
has to be told of it.
"""

import importlib
import os
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, Protocol

from paddle_node.contract import Variable
from paddle_node.environment import Attempt, NodeEnvironment, Peer
from paddle_node.failure import SettingError
from paddle_node.training.passes import Identity

Role = Literal["server", "trainer"]
LONGEST_STRING = 131_071
"""Bytes of one argument, or of one variable with its name."""


@dataclass(frozen=True)
class Process:
    """One process of this pod, described completely: nothing is inherited, nothing passes through a shell."""

    role: Role
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    log: Path
    """Its output, line by line, as CONTRACT's layout names it (server.log, train.log)."""
    working_directory: Path | None = None
    """None: the agent's own. Paddle wants to write into it."""
    ports: tuple[int, ...] = ()
    """A server's ports that listen on the pod's address once it is ready to serve."""
    health: str = ""
    """An HTTP path that a server answers on its first port while it works; empty: it cannot be asked."""
    waits_for_servers: bool = False
    """Start it only when the ports of EVERY pod's servers listen; otherwise at once, beside the servers."""

    def __post_init__(self) -> None:
        """Raises `SettingError` for what Linux could not start: Paddle wants every peer's endpoint in one variable."""
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
    """What all pods hand to their processes, by names that the runtime alone understands; empty: nothing."""
    said: str = "from the beginning"
    """The same for people, behind the words "training starts"."""
    passed_over: tuple[str, ...] = ()
    """Newer ones that were damaged, or could not be loaded."""


@dataclass(frozen=True)
class History:
    """The run's earlier attempts, as far as they bear on what the next one resumes from."""

    first: bool = True
    """No attempt of this run has begun yet."""
    fruitless: Sequence[Mapping[str, str]] = ()
    """What the failed attempts since the last progress resumed from, oldest first."""
    unloadable: Sequence[Mapping[str, str]] = ()
    """What at least two attempts resumed from that failed before their first step, and none that made a step."""


class Progress(Protocol):
    """What progress of a job is, on the volume. Blocking; asked in the pod of trainer 0 alone, one question at a time."""

    trainers_join: bool
    """Every trainer says by `coordination.join` that it is there: an end with 0 without it is no training."""

    def begin(self, identity: Identity, history: History) -> Resumption:
        """Chooses what the next attempt resumes from; it may remove what ended attempts left incomplete. May raise `Failure`."""

    def made(self, attempt: int, resumption: Resumption) -> str:
        """Names what the attempt completed beyond what it resumed from; empty: no progress. Asked once the attempt has ended."""

    def finished(self, identity: Identity, resumption: Resumption, stopped: bool) -> str | None:
        """Every trainer ended with 0, maybe as it was told to stop (`stopped`). None: the job is done; else what is missing."""

    def changed(self) -> bool:
        """Whether there is progress since the last call: an attempt without progress or output for STALL seconds ends."""


@dataclass(frozen=True)
class Runtime:
    """A kind of Paddle that can train a job."""

    name: str
    """As PADDLE_NODE_RUNTIME spells it."""
    processes: Callable[[NodeEnvironment, Sequence[Peer], Attempt], tuple[Process, ...]]
    """All processes of this pod in one attempt, servers first. The pod is done when every trainer among them ended with 0."""
    progress: Callable[[NodeEnvironment, Callable[[str], None]], Progress]
    """How progress of this kind of program is seen; it says to the second argument what people should know."""
    standby: Callable[[NodeEnvironment], tuple[Process, ...]] = lambda node: ()
    """Processes worth starting while peers are still missing; none where nothing can be done ahead.

    Each imports what is slow to import and then reads ONE line from its standard input: the JSON object
    {"argv": [...], "environ": {...}} of the `Process` of the same role, and becomes that process. It ends
    with 0 when its input ends first. An attempt without a standby starts `Process.argv` itself.
    The pod's trainer id may not be known yet; `Process.log` means nothing here.
    """


def backend(node: NodeEnvironment) -> dict[str, str]:
    """By what trainers talk to each other: gloo where they have no GPU; else Paddle chooses."""
    return {} if node.own.gpus else {"PADDLE_DISTRI_BACKEND": "gloo"}


def by_name(name: str) -> Runtime:
    """The runtime that `name` means. Raises `SettingError` with the allowed names."""
    known = _runtimes()
    if name not in known:
        raise SettingError(f"{Variable.RUNTIME} is {name!r}: allowed are {', '.join(sorted(known))}")
    return known[name]


@cache
def _runtimes() -> dict[str, Runtime]:
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    found: list[Runtime] = [module.RUNTIME for module in modules if hasattr(module, "RUNTIME")]
    return {runtime.name: runtime for runtime in found}
