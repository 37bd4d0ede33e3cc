"""One process's metrics by step, for people to read: a few hundred lines of JSON on the volume,
however long the job is.

Each line holds the means since the previous line. The newest line is never dropped, and a truncated
line spoils no other. If the volume accepts no lines, training continues.
"""

import contextlib
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

from paddle_node.contract import ExitCode, Variable
from paddle_node.environment import ProgramEnvironment
from paddle_node.failure import leave
from paddle_node.volume import durable, pass_metrics, steps
from paddle_node.volume.goodput import KEPT, PARTS, SAVING, SLOWEST
from paddle_node.volume.steps import WORLD_SIZE

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
        self._written_step: int | None = 0
        self._not_finite: set[str] = set()
        """Metrics that were not finite so far."""

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
        recent the last one is, as does the first value of a metric that is not finite.
        """
        not_finite = {name for name, value in metrics.items() if not math.isfinite(value)}
        if not_finite - self._not_finite:
            self.flush()
            self._not_finite |= not_finite
            now = True
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
        if self._sums or self._step != self._written_step:
            self._write(time.monotonic(), {})

    def _write(self, moment: float, facts: Mapping[str, object]) -> None:
        self._written, self._written_step = moment, self._step
        means = {name: total / count for name, (total, count) in self._sums.items()}
        self._sums.clear()
        line = {
            "attempt": self._attempt,
            "step": self._step,
            "time": round(time.time(), 3),
            **facts,
            "metrics": steps.encode(means),
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
    """Writes the metrics in a program's lines to its step log."""

    def __init__(self, log: StepLog, patterns: Mapping[str, str]) -> None:
        self.log = log
        self.reader = steps.LineReader(patterns)

    @property
    def unseen(self) -> Mapping[str, str]:
        """Patterns that no line has matched yet; of rank 0 only, as other ranks often print
        nothing.
        """
        return self.reader.unseen if self.log.first else {}

    def read(self, lines: Sequence[str]) -> None:
        """Reads lines that came together."""
        for report in self.reader.read(lines):
            self.log.add(report.metrics, report.step)


def print_step(step: int | None, metrics: Mapping[str, float]) -> None:
    """Prints a step for those who watch this process's lines, if its environment asks for that."""
    if os.environ.get(Variable.PRINT_STEPS):
        with contextlib.suppress(OSError):
            os.write(2, steps.format_report(step, metrics).encode())


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
