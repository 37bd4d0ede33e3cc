"""Runtimes: each defines a kind of program, with its processes, its progress, when it is done and
where it resumes.

A runtime is a file that sets `RUNTIME`, and `COMMAND` if it is another one with a command.
`find_runtime` lists it. It describes processes and does not import Paddle, which keeps the agent
small.
"""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from paddle_node.contract import LONGEST_STRING, Variable, Way
from paddle_node.environment import Attempt, PodEnvironment
from paddle_node.failure import BadSetting
from paddle_node.volume.passes import Identity

Role = Literal["server", "trainer", "check"]
HOOK = str(Path(__file__).resolve().parents[1] / "agent" / "hook")
"""The folder of the start-up hook, which comes first in the PYTHONPATH of a command."""


@dataclass(frozen=True)
class Process:
    """One process of this pod. It inherits nothing and starts without a shell."""

    role: Role
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    log: Path
    working_directory: Path | None = None
    """Paddle writes files here; None: the agent's own directory."""
    link: tuple[Path, Path] | None = None
    """A path in the pod, and the folder on the volume to which it leads once the process starts."""
    ports: tuple[int, ...] = ()
    """Ports on which a server listens once it is ready."""
    health: str = ""
    """HTTP path that a server answers on its first port while it works; empty: none."""
    waits_for_servers: bool = False
    """Whether the process starts only when EVERY pod's servers listen; otherwise it starts at
    once.
    """
    world: int = 0
    """How many ranks the job has, where what the process starts is to be held to that; else 0."""
    judged: bool = False
    """Whether what it has started tells, too, whether it has done its work: a command."""

    def __post_init__(self) -> None:
        # Paddle expects every peer's endpoint in one variable.
        words = [("an argument", word) for word in self.argv]
        words += [(name, f"{name}={value}") for name, value in self.environ.items()]
        for what, text in words:
            if (length := len(os.fsencode(text))) > LONGEST_STRING:
                raise BadSetting(
                    f"{what} of the {self.role} has {length} bytes: Linux starts no program with "
                    f"more than {LONGEST_STRING}, so a list of all peers has room for about "
                    "6,500; take fewer trainers with more threads each"
                )


@dataclass(frozen=True)
class Resumption:
    """What an attempt starts from."""

    resumed: Mapping[str, str] = field(default_factory=dict)
    """Values that all pods pass to their processes, under names that the runtime defines."""
    description: str = "from the beginning"
    """The same in words, to be printed after "training starts"."""
    passed_over: tuple[str, ...] = ()
    """Newer candidates that were damaged, could not be loaded, or led to no progress."""
    published: Mapping[str, str] = field(default_factory=dict)
    """The contents of the checkpoints that agents have copied to the volume, by name."""
    local: bool = False
    """Whether the pods' scratch alone has what it resumes from."""


@dataclass(frozen=True)
class Scratch:
    """What the next attempt can take from the pods' scratch, with `checkpoints: local`."""

    attempt: int = 0
    """The one that wrote it, or a later one that never ran; 0: none."""
    saves: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """When each complete checkpoint was changed, in nanoseconds, and its content."""
    used: bool = False
    """Whether the next attempt writes to the scratch."""


NO_SCRATCH = Scratch()


@dataclass(frozen=True)
class History:
    """What the choice of a resumption needs to know about the run's earlier attempts."""

    first: bool = True
    """Whether no attempt of this run has begun yet."""
    unloadable: Sequence[Mapping[str, str]] = ()
    """Resumptions with which at least two attempts failed before their first step and no attempt
    made a step.
    """
    number: int = 1
    """The number of the attempt that is about to begin."""
    gone: bool = False
    """Every pod has said that no process of the last attempt is left."""


class Progress(Protocol):
    """A job's progress on the volume. The methods block. Only trainer 0's pod calls them, from one
    thread at a time.
    """

    scratch: Scratch
    """What the pods have on their scratch, as far as it is known."""

    def begin(self, identity: Identity, history: History) -> Resumption:
        """Chooses what the next attempt resumes from. May remove what ended attempts left
        incomplete. May raise `Failure`.
        """

    def name_progress(self, attempt: int, resumption: Resumption) -> str:
        """Names what an ended attempt completed beyond what it resumed from; empty: no progress."""

    def find_missing(self, identity: Identity, resumption: Resumption, stopped: bool) -> str | None:
        """After every trainer exited with 0, perhaps told to stop (`stopped`): returns what is
        missing; None: the job is done. May raise `Failure`.
        """

    def save_time(self) -> float:
        """Returns the time of the last save, in seconds since 1970; 0: never."""

    def has_progressed(self) -> bool:
        """Returns whether there has been progress since the previous call. May raise `Failure`."""

    def publish(self) -> None:
        """The run has ended, and no process of it is left: puts its results where people look."""


@dataclass(frozen=True)
class Runtime:
    """One way to train a job with Paddle."""

    processes: Callable[[PodEnvironment, Sequence[str], Attempt], tuple[Process, ...]]
    """Maps all pods' addresses, by rank, to this pod's processes in one attempt, servers first.
    Each trainer must exit with 0.
    """
    progress: Callable[[PodEnvironment, Callable[[str], None]], Progress]
    """The second argument prints messages for people."""
    program_stays: bool = True
    """Whether the program's folder stays as it is while the job runs, so that all pods must have
    read the same.
    """
    standby: Mapping[Role, Sequence[str]] = field(default_factory=dict)
    """The modules that are slow to import, by the role of the process for which one stands by that
    has imported them while peers are still missing (`python_program.standby`).
    """


def backend(pod: PodEnvironment) -> dict[str, str]:
    """Returns the variable that makes trainers without a GPU communicate over gloo; with GPUs,
    Paddle chooses.
    """
    return {} if pod.command.gpus else {"PADDLE_DISTRI_BACKEND": "gloo"}


def find_runtime(way: Way) -> Runtime:
    """Returns the runtime of a way to train. Raises `BadSetting` with the allowed names."""
    modules = {
        "collective": f"{__name__}.collective",
        "fleet-ps": f"{__name__}.fleet_ps",
        "launch": f"{__name__}.launch",
        "paddle-0.x": "paddle_node.tutorials.paddle_0x",
    }
    if way.runtime not in modules:
        raise BadSetting(f"{Variable.RUNTIME} is {way.runtime!r}: allowed are {', '.join(modules)}")
    if fault := way.fault:
        raise BadSetting(f"{Variable.COMMAND} {fault}")
    module = importlib.import_module(modules[way.runtime])
    runtime: Runtime = module.RUNTIME
    return getattr(module, "COMMAND", runtime) if way.command else runtime
