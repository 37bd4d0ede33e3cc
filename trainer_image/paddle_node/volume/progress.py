"""How far a training is: rank 0's newest step, of any program that reports its steps.

Agent 0 reports it in its log, as words for people with the same as JSON behind them for tools;
whoever has the volume reads it there.
"""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from paddle_node import typed
from paddle_node.volume import attempts, steps
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.steps import Step

TAIL = 8192
"""Bytes of a rank's file that hold its last steps."""
SHORTEST = 1e-3
"""Seconds from which a speed is told."""
_FIRST = str(JobFolder(Path()).steps(0, 0))
_ATTEMPTS = str(attempts.file_of(JobFolder(Path())))
_MARK, _JSON = "[agent 0] progress ", '  {"progress": '


@dataclass(frozen=True)
class Progress:
    """Rank 0's newest step, which stands for all: another rank may be behind, or ahead.

    >>> print(Progress(attempt=2, step=21, loss=0.0792, steps_per_second=3.1))
    attempt 2, step 21, loss 0.0792, 3.1 steps/s
    """

    attempt: int
    step: int | None = None
    """The step, in the pass if there are passes; None before the attempt's first step, at the end
    of a pass, or where the program reports none.
    """
    loss: float | None = None
    """The mean of the newest steps; NaN or an infinity if that is what the program reports."""
    steps_per_second: float | None = None
    pass_number: int | None = None
    """None: the program reports no passes."""
    passes: int | None = None
    records_per_second: float | None = None
    """The rate of all trainers together."""
    seconds_left: float | None = None
    """None if nobody has counted the records."""
    last_end: str = ""
    """Why the attempt before ended; empty in a first attempt."""
    reported: str = ""
    """The time of the step's report, in ISO 8601."""
    not_finite: str = ""
    """Which metrics are NaN or infinite, and since which step."""

    @property
    def told(self) -> str:
        """The old name of `reported`."""
        return self.reported

    def __str__(self) -> str:
        step = "" if self.step is None else f"step {self.step:,}"
        if self.pass_number is None:
            where = [f"attempt {self.attempt}", step]
        else:
            last = "" if self.passes is None else f" (the last is {self.passes - 1})"
            where = [f"pass {self.pass_number}{last}", step or "complete"]
        loss = (
            ""
            if self.loss is None
            else f"loss {self.loss:{'.4f' if abs(self.loss) < 1e6 else '.4g'}}"
        )
        speed = f"{self.steps_per_second:.1f} steps/s" if self.steps_per_second else ""
        if self.records_per_second is not None:
            speed = f"{self.records_per_second:,.0f} records a second"
        left = "" if self.seconds_left is None else f"{span(self.seconds_left)} left"
        return ", ".join(filter(None, [*where, loss, self.not_finite, speed, left]))

    def as_json(self) -> dict[str, Any]:
        """Returns the values by their names; JSON has no number that is not finite."""
        values = asdict(self)
        if self.loss is not None and not math.isfinite(self.loss):
            values["loss"] = None
        return values

    def line(self) -> str:
        """Returns the line for agent 0's log."""
        values = {name: value for name, value in asdict(self).items() if value not in (None, "")}
        if self.loss is not None:
            values |= steps.encode({"loss": self.loss})
        return f"progress {self}{_JSON}{json.dumps(values)}}}"

    @classmethod
    def parse(cls, line: str) -> Self | None:
        """Returns what agent 0 reported; None if its log's line reports no progress."""
        if not line.startswith(_MARK):
            return None
        with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
            values = json.loads(line[line.rindex(_JSON) :])["progress"]
            loss = steps.decode(values.pop("loss", ""))  # Which may be no finite number.
            progress: Self = typed.read(cls, values, "progress")
            return replace(progress, loss=loss)
        return None


def read(read_file: Callable[[str, int], bytes]) -> Progress | None:
    """Returns the progress of the job in a folder; None before its first attempt.

    `read_file` returns a file's content from a byte on, or from so many bytes before its end.
    """
    record = attempts.Attempts()
    with suppress(FileNotFoundError, ValueError):
        record = attempts.parse(read_file(_ATTEMPTS, 0))
    if not record.attempts:
        return None
    last, lines, end = record.attempts[-1], list[Step](), ""
    with suppress(FileNotFoundError):
        lines = [
            step for step in steps.parse(read_file(_FIRST, -TAIL)) if step.attempt == last.number
        ]
    if len(record.attempts) > 1 and record.attempts[-2].run == last.run:
        end = record.attempts[-2].cause or ""
    return _measure(lines, last.number, end)


def read_folder(folder: JobFolder) -> Progress | None:
    """Returns the progress of the job in this folder. Blocking. Raises OSError."""
    return read(lambda path, offset: steps.read_file(folder.root / path, offset))


def _measure(lines: Sequence[Step], attempt: int, last_end: str) -> Progress:
    if not lines:
        return Progress(attempt, last_end=last_end)
    newest, before = lines[-1], lines[0]
    seconds = newest.time - before.time
    values = {name: value for step in lines for name, value in step.metrics.items()}
    rate = left = None
    if newest.records is not None and newest.shard:
        made = newest.all_records - before.all_records
        rate = made / seconds if seconds > SHORTEST and made >= 0 else None
        if rate and newest.passes is not None:
            left = max(newest.passes * newest.shard - newest.all_records, 0) / rate
    is_complete = newest.shard and newest.records is not None and newest.records >= newest.shard
    step = newest.step if newest.pass_step is None else newest.pass_step
    return Progress(
        attempt,
        None if is_complete else step,
        values.get("loss", next(iter(values.values()), None)),
        round((newest.step - before.step) / seconds, 3) if seconds > SHORTEST else None,
        newest.pass_number,
        newest.passes,
        None if rate is None else round(rate * (newest.trainers or 1), 1),
        None if left is None else round(left, 1),
        last_end,
        datetime.fromtimestamp(newest.time, UTC).isoformat(),
        ", ".join(steps.list_not_finite(lines)),
    )


def span(seconds: float) -> str:
    """Returns a length of time in words: 42 s, 7 min, 3 h 5 min, 2 d 4 h."""
    seconds = max(0, round(seconds))
    if seconds < 90:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"
