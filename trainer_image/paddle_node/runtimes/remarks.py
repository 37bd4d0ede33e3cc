"""What a command leaves behind that somebody should know of: metrics that are no numbers any more,
files that go with the pod, and patterns that matched nothing. Blocking.
"""

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from paddle_node import command_line
from paddle_node.environment import PodEnvironment
from paddle_node.runtimes.attempt_output import OUTPUT
from paddle_node.volume import durable, steps

MOST_FILES = 200_000
"""Files that are looked at."""
MOST_NAMED = 5
FIRST = {"output": OUTPUT, "rank": "0", "shard": "0", "data": "data"}
"""What rank 0 has for the placeholders of a file's name."""
NOT_RESULTS = (".log", ".pyc", ".out", ".lock", ".pid")
"""Endings of files that nobody misses."""


def not_finite(folder: Path, attempt: int) -> str:
    """Says which metrics of an attempt are not finite, and since when; `folder` has the files of
    this pod's ranks. Empty: none. Raises OSError.
    """
    words: dict[str, list[str]] = {}
    for entry in durable.entries(folder):
        if match := steps.FILE.fullmatch(entry.name):
            with contextlib.suppress(OSError):
                newest = steps.read_newest(folder / entry.name, attempt)
                for what in steps.list_not_finite(newest):
                    words.setdefault(what, []).append(match[1])
    return "; ".join(
        f"{what} on rank{'s' * (len(ranks) > 1)} {', '.join(ranks[:MOST_NAMED])}"
        for what, ranks in words.items()
    )


def outside_output(program: Path, since: float) -> str:
    """Says what was written beside `output` in the program's folder since a time, in seconds since
    1970; empty: nothing.
    """
    found: dict[str, list[int]] = defaultdict(list)
    for path, state in _changed(program, since):
        top = path.relative_to(program).parts
        found[top[0] + "/" * (len(top) > 1)].append(state.st_size)
    largest = sorted(found.items(), key=lambda entry: -sum(entry[1]))
    named = [f"{name} ({_amount(sizes)})" for name, sizes in largest[:MOST_NAMED]]
    more = [f"{len(largest) - MOST_NAMED} more"] if len(largest) > MOST_NAMED else []
    if not named:
        return ""
    return f"what it wrote outside {OUTPUT}/ goes with the pod: {', '.join([*named, *more])}"


def _amount(sizes: list[int]) -> str:
    size = float(sum(sizes))
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    files = f"{len(sizes)} files, " if len(sizes) > 1 else ""
    return f"{files}{size:.0f} {unit}" if unit == "bytes" else f"{files}{size:.1f} {unit}"


def _changed(program: Path, since: float) -> Iterator[tuple[Path, os.stat_result]]:
    seen = 0
    for folder, folders, files in os.walk(program):
        hidden = [name for name in folders if name.startswith((".", "__"))]
        for name in hidden:
            folders.remove(name)
        if Path(folder) == program and OUTPUT in folders:
            folders.remove(OUTPUT)
        for name in files:
            seen += 1
            path = Path(folder, name)
            if name.startswith(".") or name.endswith(NOT_RESULTS):
                continue
            with contextlib.suppress(OSError):
                state = path.lstat()
                # A copy of a file keeps the time of its content.
                if state.st_size and min(state.st_mtime, state.st_ctime) >= since:
                    yield path, state
        if seen > MOST_FILES:
            return


def unmatched(pod: PodEnvironment, attempt: int, metrics: Mapping[str, str]) -> Iterator[str]:
    """Says which patterns of the job have matched nothing in an attempt or a trial; `metrics` are
    those that matched no line. Raises OSError.
    """
    for name, pattern in metrics.items():
        yield f"metrics.{name} matched no line: {pattern}"
    roots = [pod.folder.attempt(pod.run_id, attempt)]
    roots += [pod.scratch(attempt)] if pod.local else []
    for glob in command_line.globs(pod.command.resume):
        if not any(durable.names(root, glob) for root in roots):
            yield f"resume matched no file, so a break costs the whole training: {glob}"
    success = command_line.fill(pod.command.success_file, FIRST | {"trainers": f"{pod.trainers}"})
    if success and not any((root / success).exists() for root in roots):
        yield f"success matched no file, so the job would not be done: {success}"
