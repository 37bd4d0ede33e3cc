"""The line that a user types to train on one machine: its words, its placeholders, and the launcher
in it.

Standard library and RE2 only: the code that runs in the pods also checks job.yaml.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

PLACEHOLDERS = {
    "data": "the folder with this pod's data",
    "output": "the job's output folder, which all pods share",
    "rank": "the process's rank, from 0",
    "trainers": "the number of pods",
    "shard": "the pod's number, from 0",
}
"""The names that a command and its settings may have in braces; `{{` and `}}` stand for braces."""
NEWEST = ("newest", "newest_stem", "newest_number")
"""Only in `resume`: {newest:<glob>} is the newest match, {newest_stem:<glob>} the same without its
last suffix, {newest_number:<glob>} the first number in what the first * stands for.
"""
_CLUSTER = "master nnodes rank ips host nproc_per_node devices gpus start_port job_id log_dir"
CLUSTER_FLAGS = tuple(_CLUSTER.split())
"""Flags of Paddle's launcher for which the job has settings; the settings win."""
_SERVERS = "run_mode servers trainers workers server_num trainer_num worker_num"
SERVER_FLAGS = tuple(_SERVERS.split())
"""Flags that make the launcher start parameter servers: under fleet-ps the job's own settings win
over them, too.
"""
OTHER_CONTROLLERS = (*SERVER_FLAGS, "auto_tuner_json", "auto_parallel_config")
"""Flags that make the launcher do more than start one program per rank."""
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PYTHON = re.compile(r"python(\d(\.\d+)?)?")
_MODULE = re.compile(r"-[bBdEiIOPqsSuvx]*m(.*)")
"""The option of Python that runs a module, also after other letters, or with the module in it."""
_WRAPPED = "env ionice nice nohup numactl poetry stdbuf taskset timeout uv"
_WRAPPERS = tuple(_WRAPPED.split())
"""Programs that run the words that follow their own."""


@dataclass(frozen=True)
class Launcher:
    """A program that starts one process for each rank."""

    title: str
    """Its name in messages."""
    programs: tuple[str, ...]
    modules: tuple[str, ...]
    switches: tuple[str, ...] = ()
    """Flags without a value; all others have one."""
    replaced: bool = True
    """Whether the agent starts the ranks itself instead of the launcher. Otherwise the launcher
    runs once in each pod, and its environment names the other pods.
    """

    def is_switch(self, flag: str) -> bool:
        """Returns whether a flag, perhaps shortened as argparse allows, has no value."""
        return flag in self.switches or (
            len(flag) > 1 and any(switch.startswith(flag) for switch in self.switches)
        )


PADDLE = Launcher(
    "Paddle's launcher",
    ("fleetrun",),
    (
        "paddle.distributed.launch",
        "paddle.distributed.launch.main",
        "paddle.distributed.fleet.launch",
    ),
)
TORCH = Launcher(
    "torchrun",
    ("torchrun",),
    ("torch.distributed.run", "torch.distributed.launch"),
    ("h", "help", "m", "module", "no_python", "run_path", "standalone", "use_env"),
)
PADDLEFORMERS = Launcher(
    "paddleformers-cli", ("paddleformers-cli",), ("paddleformers.cli.cli",), replaced=False
)
"""Starts Paddle's launcher itself, and reads NNODES, RANK, MASTER_ADDR and MASTER_PORT."""
LAUNCHERS = (PADDLE, TORCH, PADDLEFORMERS)


LOCAL_LAUNCHERS = {
    "accelerate": "accelerate launch",
    "deepspeed": "deepspeed",
    "mpirun": "mpirun",
    "mpiexec": "mpiexec",
    "horovodrun": "horovodrun",
}
"""Programs that start the ranks of one machine, and their names in messages."""
_SPAWN = re.compile(
    r"\b(dist|distributed|mp|multiprocessing)\.spawn\(|\bmultiprocessing\.spawn import"
)
"""In a command line: a process that multiprocessing has spawned; in a script: a call that does."""
_MACHINES = re.compile(r"--(num_machines|machine_rank|hostfile|hosts?|include)\b| -(H|hostfile)\b")
"""Flags by which such a launcher is told of more machines."""


def name_local_launcher(lines: Iterable[str]) -> str:
    """Returns the launcher, of those that know one machine, that command lines or lines of a script
    name; empty: none.
    """
    for line in lines:
        for word in line.split():
            name = PurePosixPath(word).name
            if name in LOCAL_LAUNCHERS and not _MACHINES.search(line):
                return LOCAL_LAUNCHERS[name]
        if _SPAWN.search(line):
            return "spawn"
    return ""


def describe_local(launcher: str) -> str:
    """Says which line trains on several machines in place of a launcher's."""
    if launcher == "spawn":
        return (
            "paddle.distributed.spawn and torch's know one machine: write `python -m "
            "paddle.distributed.launch train.py` (or torchrun), and let train.py call the function "
            "itself that it spawned"
        )
    if launcher:
        return (
            f"{launcher} knows one machine: write `torchrun train.py` (or `python -m "
            "paddle.distributed.launch train.py`) in its place, with the program and its arguments"
        )
    return (
        "Write `python -m paddle.distributed.launch train.py` or `torchrun train.py`, and let the "
        "program call init_parallel_env() or init_process_group()"
    )


def fill(text: str, values: Mapping[str, str], newest: str | None = None) -> str:
    """Fills the placeholders of `text`; `newest` is what `resume` resumes from. Raises ValueError
    for any other placeholder.
    """

    def replace(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        name, _, glob = (match[1] or "").partition(":")
        if glob and newest is not None and name in NEWEST:
            return _of_newest(name, glob, newest)
        if match[0][:1] != "{" or glob or name not in values:
            allowed = [f"{{{name_}}}" for name_ in values]
            allowed += [f"{{{name_}:<glob>}}" for name_ in NEWEST] if newest is not None else []
            raise ValueError(
                f"{match[0]}, not a placeholder: {', '.join(allowed)} are, and {{{{ and }}}} "
                "stand for braces"
            )
        return values[name]

    return _BRACES.sub(replace, text)


def _of_newest(name: str, glob: str, newest: str) -> str:
    if name == "newest":
        return newest
    if name == "newest_stem":
        return str(PurePosixPath(newest).with_suffix(""))
    path = "/".join(PurePosixPath(newest).parts[-len(PurePosixPath(glob).parts) :])
    before = len(re.sub(r"\[.[^]]*\]", "?", glob.partition("*")[0]))
    number = re.search(r"\d+", path[before:])
    return str(int(number[0])) if number else "0"


def globs(words: Sequence[str]) -> set[str]:
    """Returns the glob patterns that `resume` names."""
    parts = (
        match[1].partition(":") for word in words for match in _BRACES.finditer(word) if match[1]
    )
    return {glob for name, _, glob in parts if name in NEWEST}


@dataclass(frozen=True)
class ParsedCommand:
    """A parsed command."""

    program: tuple[str, ...]
    """What runs as each rank: the words without a launcher that the agent replaces."""
    flags: Mapping[str, str]
    """The launcher's flags, with underscores for dashes; empty if the line names no launcher."""
    starts_ranks: bool
    """The line may start the pod's ranks itself, by the environment: a script, a launcher that is
    not replaced, or Paddle's with `OTHER_CONTROLLERS`.
    """
    launcher: Launcher | None = None
    folder: str = ""
    """The folder of a launcher that the line names by a path. The ranks run by the Python there,
    unless it has none.
    """

    def list_overridden(self, servers: bool) -> list[str]:
        """Returns the launcher's flags, as typed, that the job's own settings replace."""
        ours = (*CLUSTER_FLAGS, *(SERVER_FLAGS if servers else ()))
        if self.launcher is TORCH:  # All but those that say how the program is started.
            ours = (*self.flags.keys() - set(TORCH.switches), "standalone")
        return [f"--{flag} {value}".rstrip() for flag, value in self.flags.items() if flag in ours]


def read(words: Sequence[str], servers: bool = False) -> ParsedCommand:
    """Parses `words`; with `servers` the job starts the parameter servers, too. Raises ValueError
    if the program is missing, or if the launcher would hand it what the agent cannot.
    """
    start = _start(words)
    wrapper, words = tuple(words[:start]), words[start:]
    python, module, rest = split_python(words)
    folder = "" if python or "/" not in words[0] else str(PurePosixPath(words[0]).parent)
    launcher = _launcher(module, "" if module or not rest else rest[0])
    if launcher is None:
        return ParsedCommand((*wrapper, *words), {}, not python)
    if not launcher.replaced:
        return ParsedCommand((*wrapper, *words), {}, True, launcher)
    if not module:
        rest = rest[1:]
    flags: dict[str, str] = {}
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).lstrip("-").partition("=")
        if not name:
            break
        flag = name.replace("-", "_")
        takes_next = not equals and rest and not launcher.is_switch(flag)
        flags[flag] = rest.pop(0) if takes_next else value
    if launcher is PADDLE and (module_name := flags.get("m") or flags.get("module")):
        raise ValueError(
            f"{' '.join(words)}: Paddle's launcher runs a file, not a module: name "
            f"{module_name.replace('.', '/')}.py in place of -m {module_name}"
        )
    if not rest:
        raise ValueError(f"{' '.join(words)}: a program is missing after {launcher.title}")
    if any(flag in flags for flag in OTHER_CONTROLLERS if not (servers and flag in SERVER_FLAGS)):
        return ParsedCommand((*wrapper, *words), flags, True, launcher)
    if module == "torch.distributed.launch" and "use_env" not in flags:
        raise ValueError(
            f"{' '.join(words)}: torch.distributed.launch hands --local-rank to the program; name "
            "torchrun instead, or add --use-env"
        )
    if "m" in flags or "module" in flags:
        rest.insert(0, "-m")
    # torchrun runs anything by Python; Paddle's launcher a .py file alone.
    if "no_python" not in flags if launcher is TORCH else rest[0].endswith(".py"):
        rest = [*(python or (str(PurePosixPath(folder, "python")),)), "-u", *rest]
    return ParsedCommand((*wrapper, *rest), flags, False, launcher, folder)


def _start(words: Sequence[str]) -> int:
    """Returns where the program begins behind a wrapper such as `env` and its own words."""
    if PurePosixPath(words[0]).name not in _WRAPPERS:
        return 0
    starts = (
        number
        for number, word in enumerate(words)
        if "=" not in word and (_is_python(word) or _launcher("", word))
    )
    return next(starts, 0)


def _is_python(word: str) -> bool:
    return _PYTHON.fullmatch(PurePosixPath(word).name) is not None


def split_python(words: Sequence[str]) -> tuple[tuple[str, ...], str, list[str]]:
    """Returns the words of a Python interpreter, if the line begins with one, the module that it
    runs, and what follows: the module's arguments, or the script and its own.
    """
    if not _is_python(words[0]):
        return (), "", list(words)
    position = 1
    while position < len(words) and words[position].startswith("-"):
        if match := _MODULE.fullmatch(words[position]):
            after = position + (1 if match[1] else 2)
            return (
                tuple(words[:position]),
                match[1] or "".join(words[after - 1 : after]),
                list(words[after:]),
            )
        if words[position] in ("-", "-c"):
            break
        position += 2 if words[position] in ("-W", "-X") else 1
    return tuple(words[:position]), "", list(words[position:])


def _launcher(module: str, program: str) -> Launcher | None:
    """Returns the launcher that a module or a program is."""
    name = PurePosixPath(program).name
    return next(
        (
            launcher
            for launcher in LAUNCHERS
            if module in launcher.modules or name in launcher.programs
        ),
        None,
    )


def script(words: Sequence[str]) -> str:
    """Returns the Python file that the command names; empty if none can be determined."""
    if not words:
        return ""
    program = read(words).program
    python, module, rest = split_python(program[_start(program) :])
    named = bool(python) and not module and bool(rest) and rest[0].endswith(".py")
    return rest[0] if named and not _BRACES.search(rest[0]) else ""


def contradiction(flags: Mapping[str, str], trainers: int) -> str | None:
    """Returns a launcher flag that contradicts the number of pods, else None; a count of 1 is what
    one types on one machine.
    """
    nodes = flags.get("nnodes", "1")
    bounds = nodes.split(":")
    if nodes != "1" and not (
        all(b.isdigit() for b in bounds) and int(bounds[0]) <= trainers <= int(bounds[-1])
    ):
        return f"--nnodes {nodes}"
    count = len(flags["ips"].split(",")) if flags.get("ips") else 1
    return f"--ips of {count} machines" if count not in (1, trainers) else None


def compile_pattern(pattern: str) -> Any:
    """Compiles a metric's pattern with RE2: no line can slow it down, as a line can Python's own
    engine. Raises ValueError.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode(errors="replace")) from None


def pattern_fault(pattern: str) -> str:
    """Returns what is wrong with a pattern that finds a metric in a line; empty: nothing."""
    try:
        groups = compile_pattern(pattern).groups
    except ValueError as error:
        return f"RE2 cannot read this pattern ({error}); it has no look-around, no backreferences"
    return "" if groups else "a group is needed around the number, as in 'loss: ([0-9.]+)'"
