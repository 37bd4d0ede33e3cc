"""How far a training is by the steps that it wrote on the volume: any program that reports them."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paddle_node.volume.job_folder import JobFolder

from paddle_aws.operations.jobs.volume.server import Folder

_TAIL = 8192
"""Bytes of a metrics file that hold its last lines."""
_FIRST = JobFolder(Path()).steps(0, 0)
_ATTEMPTS = JobFolder(Path()).run_state / "attempts.json"


@dataclass(frozen=True)
class StepProgress:
    """Rank 0's newest step, and the attempt that it belongs to.

    >>> print(StepProgress(attempt=2, step=21, loss=0.0792, steps_per_second=3.1))
    attempt 2, step 21, loss 0.0792, 3.1 steps/s
    """

    attempt: int
    step: int | None = None
    """None before the attempt's first step, or where the program reports none."""
    loss: float | None = None
    steps_per_second: float | None = None
    last_end: str = ""
    """Why the attempt before ended; empty in a first attempt."""
    reported: str = ""
    """The time of the step's report, in ISO 8601."""

    @property
    def told(self) -> str:
        """The old name of `reported`."""
        return self.reported

    def __str__(self) -> str:
        parts = [f"attempt {self.attempt}"]
        parts += [] if self.step is None else [f"step {self.step:,}"]
        parts += [] if self.loss is None else [f"loss {self.loss:.4f}"]
        parts += [] if not self.steps_per_second else [f"{self.steps_per_second:.1f} steps/s"]
        return ", ".join(parts)


def read(volume: Folder) -> StepProgress | None:
    """Returns the progress of the job in this folder; None before its first attempt."""
    attempts: list[dict[str, Any]] = []
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        attempts = [
            attempt
            for attempt in json.loads(volume.read(str(_ATTEMPTS)))["attempts"]
            if isinstance(attempt, dict) and isinstance(attempt.get("number"), int)
        ]
    if not attempts:
        return None
    number, steps = attempts[-1]["number"], []
    with suppress(FileNotFoundError):
        steps = [line for line in _steps(volume) if line.get("attempt") == number]
    end = ""
    if len(attempts) > 1 and attempts[-2].get("run") == attempts[-1].get("run"):
        end = str(attempts[-2].get("cause") or "")
    if not steps:
        return StepProgress(number, last_end=end)
    newest, before = steps[-1], steps[0]
    seconds = newest["time"] - before["time"]
    speed = (newest["step"] - before["step"]) / seconds if seconds > 0 else None
    values = newest["metrics"] if isinstance(newest.get("metrics"), dict) else {}
    loss = values.get("loss", next(iter(values.values()), None))
    reported = datetime.fromtimestamp(newest["time"], UTC).isoformat()
    return StepProgress(
        number, newest["step"], loss if _is_number(loss, 1e300) else None, speed, end, reported
    )


def _steps(volume: Folder) -> Iterator[dict[str, Any]]:
    """Yields the last lines of rank 0's metrics. What is cut off, or is no step, is left out: any
    program can write to that file.
    """
    for line in volume.read(str(_FIRST), -_TAIL).splitlines():
        with suppress(ValueError, RecursionError):
            step = json.loads(line)
            if (
                isinstance(step, dict)
                and _is_number(step.get("step"), 1e18)
                and _is_number(step.get("time"), 1e11)
            ):
                yield step | {"step": int(step["step"])}


def _is_number(value: Any, largest: float) -> bool:
    """Returns whether a value of a JSON document is a number up to `largest`, not a NaN."""
    return type(value) in (int, float) and -largest <= value <= largest
