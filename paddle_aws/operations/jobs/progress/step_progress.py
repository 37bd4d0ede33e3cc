"""How far a training is by the steps that it wrote on the volume: any program that reports them."""

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paddle_node.volume import steps
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
    number, lines = attempts[-1]["number"], []
    with suppress(FileNotFoundError):
        content = volume.read(str(_FIRST), -_TAIL)
        lines = [step for step in steps.parse(content) if step.attempt == number]
    end = ""
    if len(attempts) > 1 and attempts[-2].get("run") == attempts[-1].get("run"):
        end = str(attempts[-2].get("cause") or "")
    if not lines:
        return StepProgress(number, last_end=end)
    newest, before = lines[-1], lines[0]
    seconds = newest.time - before.time
    speed = (newest.step - before.step) / seconds if seconds > 0 else None
    values = {name: value for step in lines for name, value in step.metrics.items()}
    loss = values.get("loss", next(iter(values.values()), None))
    reported = datetime.fromtimestamp(newest.time, UTC).isoformat()
    loss = loss if loss is not None and math.isfinite(loss) else None
    return StepProgress(number, newest.step, loss, speed, end, reported)
