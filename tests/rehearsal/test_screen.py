"""The last words of a rehearsal: a model that learned nothing."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from k8s_charts.spec import TrainingJob
from rehearsal.paddle_job import Measured
from rehearsal.summary import Results, summary


@pytest.mark.parametrize(
    ("value", "said", "colour"),
    [(0.9, "trained and gone again", "\x1b[32m"), (0.5, "trained, but no better than a constant guess", "\x1b[33m")],
)
def test_a_model_that_learned_nothing_is_not_all_green(value, said, colour):
    job = TrainingJob.parse({"name": "mine", "trainers": 1, "data": {"source": "a"}})
    measured = Measured("accuracy", value, baseline=0.5, first_loss=1.0, last_loss=0.9)
    console = Console(width=100, force_terminal=True, color_system="standard", file=io.StringIO())
    console.print(summary(Results.of_program(job, measured, Path("logs")), [], 1.0))
    frame = next(line for line in console.file.getvalue().splitlines() if said in line)
    assert frame.startswith(colour)
