"""The line that a user types to train on one machine: its words, its placeholders, and Paddle's
launcher in it.

Standard library and RE2 only: the very code that the pods run also checks job.yaml.
"""

import re
from collections.abc import Mapping, Sequence
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
"""What a command and its settings may name in braces; `{{` and `}}` stand for braces."""
NEWEST = ("newest", "newest_stem")
"""Only in `resume`: {newest:<glob>} is the newest match, {newest_stem:<glob>} the same without its
last suffix.
"""
_CLUSTER = "master nnodes rank ips host nproc_per_node devices gpus start_port job_id log_dir"
CLUSTER_FLAGS = tuple(_CLUSTER.split())
"""Flags of Paddle's launcher that say the same as this job's own settings, which win."""
SERVER_FLAGS = (
    "run_mode",
    "servers",
    "trainers",
    "workers",
    "server_num",
    "trainer_num",
    "worker_num",
)
"""Flags that make the launcher start parameter servers: under fleet-ps the job's own settings win
over them, too.
"""
OTHER_CONTROLLERS = (*SERVER_FLAGS, "auto_tuner_json", "auto_parallel_config")
"""Flags that make the launcher do more than start one program per rank."""
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_LAUNCHERS = ("paddle.distributed.launch", "paddle.distributed.fleet.launch")
_PYTHON = re.compile(r"python(\d(\.\d+)?)?")


def fill(text: str, values: Mapping[str, str], newest: str | None = None) -> str:
    """Fills the placeholders of `text`; `newest` is what `resume` resumes from. Raises ValueError
    for any other placeholder.
    """

    def one(found: re.Match[str]) -> str:
        if found[0] in ("{{", "}}"):
            return found[0][0]
        name, _, glob = (found[1] or "").partition(":")
        if glob and newest is not None and name in NEWEST:
            return newest if name == "newest" else str(PurePosixPath(newest).with_suffix(""))
        if found[0][:1] != "{" or glob or name not in values:
            allowed = [f"{{{each}}}" for each in values]
            allowed += [f"{{{each}:<glob>}}" for each in NEWEST] if newest is not None else []
            raise ValueError(
                f"{found[0]}, not a placeholder: {', '.join(allowed)} are, and {{{{ and }}}} "
                "stand for braces"
            )
        return values[name]

    return _BRACES.sub(one, text)


def globs(words: Sequence[str]) -> set[str]:
    """Returns the glob patterns that `resume` names."""
    found = (
        match[1].partition(":") for word in words for match in _BRACES.finditer(word) if match[1]
    )
    return {glob for name, _, glob in found if name in NEWEST}


@dataclass(frozen=True)
class Line:
    """A parsed command."""

    program: tuple[str, ...]
    """What runs as each rank: the words without Paddle's launcher and its flags."""
    flags: Mapping[str, str]
    """The launcher's flags; empty if the line does not name the launcher."""
    starts_ranks: bool
    """The line may start the pod's ranks itself, by the environment: a script, or the launcher with
    `OTHER_CONTROLLERS`.
    """


def read(words: Sequence[str], servers: bool = False) -> Line:
    """Parses `words`; with `servers` the job starts the parameter servers, too. Raises ValueError
    if the program is missing.
    """
    name = PurePosixPath(words[0]).name
    python = _PYTHON.fullmatch(name) is not None
    start = 0
    interpreter: tuple[str, ...] = ("python",)
    if name == "fleetrun":
        start = 1
    module = next((i for i, word in enumerate(words[:-1]) if word == "-m"), 0)
    if (
        python
        and module
        and words[module + 1] in _LAUNCHERS
        and all(word.startswith("-") for word in words[1:module])
    ):
        start, interpreter = module + 2, tuple(words[:module])
    if not start:
        return Line(tuple(words), {}, not python)
    flags: dict[str, str] = {}
    rest = list(words[start:])
    while rest and rest[0].startswith("-"):
        flag, equals, value = rest.pop(0).lstrip("-").partition("=")
        # Every flag of the launcher takes a value.
        flags[flag] = value if equals or not rest else rest.pop(0)
    if not rest:
        raise ValueError(f"{' '.join(words)}: a program is missing after Paddle's launcher")
    if any(flag in flags for flag in OTHER_CONTROLLERS if not (servers and flag in SERVER_FLAGS)):
        return Line(tuple(words), flags, True)
    return Line(
        (*interpreter, "-u", *rest) if rest[0].endswith(".py") else tuple(rest), flags, False
    )


def script(words: Sequence[str]) -> str:
    """Returns the Python file that the command names; empty if none can be determined."""
    program = read(words).program if words else ("",)
    first = next((word for word in program[1:] if not word.startswith("-")), "")
    return (
        first
        if _PYTHON.fullmatch(program[0]) and first.endswith(".py") and not _BRACES.search(first)
        else ""
    )


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


def compiled(pattern: str) -> Any:
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
        return (
            ""
            if compiled(pattern).groups
            else "a group is needed around the number, as in 'loss: ([0-9.]+)'"
        )
    except ValueError as error:
        return f"no regular expression of RE2's: {error}"
