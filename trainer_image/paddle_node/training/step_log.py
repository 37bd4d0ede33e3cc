"""One process's metrics by step, for people to read: a few hundred lines of JSON on the volume,
however long the job is.

Each line holds the means since the previous line. The newest line is never dropped, and a truncated
line spoils no other. If the volume accepts no lines, training continues.
"""

import contextlib
import json
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from paddle_node import command_line
from paddle_node.contract import ExitCode, Variable
from paddle_node.environment import ProgramEnvironment
from paddle_node.failure import leave
from paddle_node.volume import durable, pass_metrics
from paddle_node.volume.goodput import KEPT, PARTS, SAVING, SLOWEST

MOST_LINES = 500
"""Lines of a file above which every second line that neither begins nor ends an attempt is
dropped.
"""
SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.5, 10.0
"""Shortest and longest seconds between two lines; in between, a hundredth of the process's running
time.
"""
RETRY_AFTER = 60.0
"""Seconds before a volume that accepted no line is tried again."""
LINE_LENGTH = 2000
"""Characters of a log line that are searched for metrics."""
MOST_READ = 16
"""Lines with metrics that are read of those that came together: more come from a program that
prints faster than anybody can read, and a sample of its lines is as good.
"""
STEP = "step"
WORLD_SIZE = "world_size"
"""The metric that is no number of a step, but how many ranks the program has."""


class StepLog:
    """The step log of one process in one attempt."""

    def __init__(self, file: Path, attempt: int) -> None:
        self._file, self._attempt = file, attempt
        self.first = file.stem == "steps-0"
        self._began = time.monotonic()
        self._written = -math.inf
        self._lines: int | None = None
        self._refused = self._counted = False
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
        self._step = 0

    @property
    def step(self) -> int:
        """The step that was added last."""
        return self._step

    def add(
        self,
        metrics: Mapping[str, float],
        step: int | None = None,
        *,
        now: bool = False,
        **facts: object,
    ) -> None:
        """Adds a step's metrics; counts steps unless `step` is given. `now` writes a line however
        recent the last one is.
        """
        self._counted = step is None
        self._step = self._step + 1 if step is None else step
        for name, value in metrics.items():
            self._sums[name][0] += value
            self._sums[name][1] += 1
        moment = time.monotonic()
        if now or moment - self._written >= min(
            max(SHORTEST_INTERVAL, (moment - self._began) / 100), LONGEST_INTERVAL
        ):
            self._write(moment, facts)

    def flush(self) -> None:
        """Writes what was added since the last line."""
        if self._sums:
            self._write(time.monotonic(), {})

    def _write(self, moment: float, facts: Mapping[str, object]) -> None:
        self._written = moment
        means = {name: total / count for name, (total, count) in self._sums.items()}
        self._sums.clear()
        # JSON has no infinity, and nobody can draw one.
        entry = {
            name: float(f"{mean:.6g}") if math.isfinite(mean) else None
            for name, mean in means.items()
        }
        line = {
            "attempt": self._attempt,
            "step": self._step,
            "time": round(time.time(), 3),
            **facts,
            "metrics": entry,
        }
        if self._counted:
            line["counted"] = True
        try:
            if self._lines is None:
                self._lines = self._file.read_bytes().count(b"\n") if self._file.exists() else 0
            pass_metrics.append(self._file, line, sync=False)
            self._lines += 1
            if self._lines > MOST_LINES:
                kept = thin(self._file.read_bytes().splitlines(keepends=True))
                durable.write(self._file, b"".join(kept))
                self._lines = len(kept)
        except OSError as error:
            if not self._refused:
                print(
                    f"{self._file} takes no metrics: {error.strerror or error}; training "
                    "continues without",
                    flush=True,
                )
            self._refused, self._written = True, moment + RETRY_AFTER


def thin(lines: Sequence[bytes]) -> list[bytes]:
    """Returns every second line and each line that begins or ends an attempt, without truncated
    lines.
    """
    lines = [line for line in lines if line.endswith(b"}\n")]
    whose = [line.partition(b",")[0] for line in lines]
    last = len(lines) - 1
    edge = [
        place in (0, last) or whose[place - 1 : place + 2] != [rank] * 3
        for place, rank in enumerate(whose)
    ]
    return [line for place, line in enumerate(lines) if edge[place] or place % 2][-MOST_LINES:]


class TimeSpent:
    """A trainer's seconds by `PARTS`; `waited` returns the seconds that it has waited for others so
    far.
    """

    def __init__(self, waited: Callable[[], float]) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._kept = dict.fromkeys(KEPT, 0.0)
        self._waited = waited
        self._last = time.monotonic(), waited()

    def count_lap(self, part: str) -> None:
        """Counts the time since the last lap as `part` and its waits as `SLOWEST`; a save includes
        its waits.
        """
        before, waited_before = self._last
        now, waited = self._last = time.monotonic(), self._waited()
        waits = 0.0 if part == SAVING else waited - waited_before
        self.seconds[SLOWEST] += waits
        self.seconds[part] += now - before - waits

    def keep(self) -> None:
        """Marks what was trained until now as safe from any loss."""
        self._kept = {name: self.seconds[part] for name, part in KEPT.items()}

    def round_seconds(self) -> dict[str, float]:
        """Returns all seconds, rounded."""
        return {name: round(seconds, 3) for name, seconds in {**self.seconds, **self._kept}.items()}


class LineMetrics:
    """Metrics in a program's log lines. The first group of each pattern is the metric of that name;
    `step` is the step's number. Lines without a step, such as those behind a progress bar, belong
    to the step of the line before. The groups `epoch`, `iteration` and `iterations` together tell
    the number of a program that counts iterations anew in each epoch.
    """

    def __init__(self, log: StepLog, patterns: Mapping[str, str]) -> None:
        self.log = log
        self._patterns = {
            name: command_line.compile_pattern(pattern) for name, pattern in patterns.items()
        }
        self._in_many = [
            command_line.compile_pattern(f"(?m){pattern}")
            for name, pattern in patterns.items()
            if name not in (WORLD_SIZE, STEP)
        ]
        self._step: int | None = None
        self.of_world = self._patterns.pop(WORLD_SIZE, None)
        self.world = 0
        """How many ranks the program says that it has; 0: it has not said so."""
        self.unseen = dict(patterns) if log.first else {}
        """Patterns that no line has matched yet; for rank 0 only, as other ranks often print
        nothing.
        """

    def read(self, lines: Sequence[str]) -> None:
        """Reads lines that came together: if they are many, up to `MOST_READ` with metrics, spread
        evenly.
        """
        for line in lines if self.of_world is not None else ():
            if (match := self.of_world.search(line[:LINE_LENGTH])) and match[1].isdecimal():
                self.world = int(match[1])
                self.unseen.pop(WORLD_SIZE, None)
        if len(lines) <= MOST_READ:
            for line in lines:
                self._read(line)
            return
        text = "\n".join(lines).encode(errors="replace")
        begin = 0
        for place in range(1, MOST_READ + 1):
            if begin * MOST_READ >= place * len(text):
                continue
            matches = [pattern.search(text, begin) for pattern in self._in_many]
            starts = [match.start() for match in matches if match]
            if not starts:
                return
            start, end = text.rfind(b"\n", 0, min(starts)) + 1, text.find(b"\n", min(starts))
            end = len(text) if end < 0 else end
            above = text[max(begin, start - LINE_LENGTH) : start].decode(errors="replace")
            self._read_step(above.split("\n"))
            self._read(text[start:end].decode(errors="replace"))
            begin = max(end + 1, place * len(text) // MOST_READ)

    def _read_step(self, lines: Sequence[str]) -> None:
        """Reads the newest step in the lines."""
        if STEP not in self._patterns:
            return
        for line in reversed(lines):
            if match := self._patterns[STEP].search(line[:LINE_LENGTH]):
                with contextlib.suppress(TypeError, ValueError, OverflowError):
                    self._step = int(_number_in(match))
                    self.unseen.pop(STEP, None)
                    return

    def _read(self, line: str) -> None:
        self._read_step([line])
        values = {}
        for name, pattern in self._patterns.items():
            if name != STEP and (match := pattern.search(line[:LINE_LENGTH])):
                with contextlib.suppress(TypeError, ValueError):
                    values[name] = _number_in(match)
                    self.unseen.pop(name, None)
        if values:
            self.log.add(values, self._step)


def _number_in(match: Any) -> float:
    """Returns the number that a line tells: the first group; or, of epochs from 1 and iterations
    within them, how many iterations there were. Raises TypeError or ValueError.
    """
    parts = match.groupdict()
    if set(parts) != {"epoch", "iteration", "iterations"}:
        return float(match[1])
    return (float(parts["epoch"]) - 1) * float(parts["iterations"]) + float(parts["iteration"])


def print_step(step: int | None, metrics: Mapping[str, float]) -> None:
    """Prints a step for those who watch this process's lines, if its environment asks for that."""
    if os.environ.get(Variable.PRINT_STEPS):
        line = f"paddle_node: step {step} {json.dumps(dict(metrics))}\n"
        with contextlib.suppress(OSError):
            os.write(2, line.encode())


def report(metrics: Mapping[str, Any], step: Any) -> None:
    """See `paddle_node.report`."""
    _refuse_other_world(metrics)
    if (log := _own_log()) is None:
        return
    values = {
        name: number
        for name, value in metrics.items()
        if name != WORLD_SIZE and (number := _number(name, value, float)) is not None
    }
    log.add(values, None if step is None else _number("step", step, int))
    print_step(log.step, values)


def _refuse_other_world(metrics: Mapping[str, Any]) -> None:
    """Ends the process, and with it the job, if it is part of another world than the job's: as the
    program says, or as torch or Paddle know.
    """
    world = _own_world()
    size = _number(WORLD_SIZE, metrics.get(WORLD_SIZE, 0), int) or _formed_world()
    if world and size and size != world:
        print(
            f"the program reports world_size {size}, and the job's world is {world}: it would "
            "train alone; let it read RANK and WORLD_SIZE of the environment",
            flush=True,
        )
        leave(ExitCode.BAD_SETTING)


def _formed_world() -> int:
    """Returns the size of the process group that torch or Paddle have made here; 0: none is
    known.
    """
    for name in ("torch.distributed", "paddle.distributed"):
        with contextlib.suppress(Exception):  # From any version of either.
            module = sys.modules[name]
            if module.is_initialized():
                return int(module.get_world_size())
    return 0


_refused: set[str] = set()
"""Names whose values were not numbers."""


def _number(name: str, value: Any, kind: type[int | float]) -> Any:
    """Converts any value, such as a Tensor or a NumPy number. If the value is not a number, says
    so, and training continues.
    """
    try:
        return kind(value)
    except Exception as error:  # From any library.
        if name not in _refused:
            print(
                f"paddle_node.report: {name} is not a number and is left out: "
                f"{type(value).__name__}, {error}",
                flush=True,
            )
        _refused.add(name)
        return None


@cache
def _own_world() -> int:
    """Returns how many ranks the job has, where that binds this process; else 0."""
    return ProgramEnvironment.read().world


@cache
def _own_log() -> StepLog | None:
    """Returns this process's step log; None outside a pod, or if the lines of the process's log are
    read instead.
    """
    environment = ProgramEnvironment.read()
    if not environment.steps or environment.metrics:
        return None
    # If the program's own launcher starts processes in the pod, each has its own rank and its own
    # file.
    file = Path(environment.steps)
    named = [
        file.with_name(f"steps-{rank}.jsonl")
        for rank in (environment.launched_rank, environment.rank)
        if rank.isdecimal()
    ]
    log = StepLog(next((name for name in named if name != file), file), environment.attempt)
    # Flushes even if multiprocessing started this process, which then ends without atexit.
    Finalize(None, log.flush, exitpriority=0)
    return log


os.register_at_fork(after_in_child=_own_log.cache_clear)
