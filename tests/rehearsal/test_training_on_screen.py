"""What a user sees of a training: a row for each pass that every trainer went through, in any order of their lines."""

import io
import json

import pytest
from paddle_node.contract import JobFolder
from rich.console import Console

from rehearsal.screen import Screen
from rehearsal.training_screen import TrainingProgress, TrainingScreen, outcome


@pytest.fixture
def folder(tmp_path):
    return JobFolder(tmp_path / "quick-start")


def report(folder, number, trainer, loss, attempt=1, end="\n", **more):
    folder.node(trainer).mkdir(parents=True, exist_ok=True)
    line = {
        "pass": number,
        "attempt": attempt,
        "trainer": trainer,
        "loss": loss,
        "records": 10 * (trainer + 1),
        "seconds": 0.5,
        "time": 1e9 + number,
        **more,
    }
    with folder.metrics(trainer).open("a") as file:
        file.write(json.dumps(line) + end)


def test_a_pass_counts_once_every_trainer_reported_it(folder):
    progress = TrainingProgress(folder, 2)
    assert progress.read() == [] and "pods are starting" in progress.waiting_for
    report(folder, 0, 1, 3.0)
    assert progress.read() == [] and progress.waiting_for == "pass 0 of 2 trainers"
    report(folder, 0, 0, 1.5)
    (one,) = progress.read()
    assert one.records == 30 and one.loss == pytest.approx((1.5 * 10 + 3.0 * 20) / 30)
    assert progress.read() == [] and progress.waiting_for == "pass 1 of 2 trainers"


def test_half_a_line_is_read_when_it_is_whole(folder):
    progress = TrainingProgress(folder, 1)
    report(folder, 0, 0, 1.0, end="")
    assert progress.read() == []
    with folder.metrics(0).open("a") as file:
        file.write("\n")
    assert [one.number for one in progress.read()] == [0]


def test_a_later_attempt_replaces_a_pass(folder):
    progress = TrainingProgress(folder, 1)
    report(folder, 0, 0, 1.0)
    report(folder, 1, 0, 9.0)
    progress.read()
    report(folder, 1, 0, 0.5, attempt=2)
    assert [(one.number, one.attempt, one.loss) for one in progress.read()] == [(1, 2, 0.5)]
    assert outcome([progress.passes[0], progress.passes[1]], 1, 1) == "2 passes by 1 trainer, loss 1.000 -> 0.500, 1 pod replaced"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("trainers", [3, 16])
def test_a_row_fits_its_line_in_a_pipe(folder, width, trainers):
    for trainer in range(trainers):
        report(folder, 0, trainer, 1.25)
    said = io.StringIO()
    with Screen(Console(file=said, width=width)) as screen, screen.phase("train") as phase:
        TrainingScreen(phase, screen, TrainingProgress(folder, trainers)).show()
        phase.result = "1 pass"
    lines = said.getvalue().splitlines()
    assert len(lines) == 3 and all(len(line) <= width for line in lines)
    assert lines[1].split()[:2] == ["0", "1.2500"] and lines[2].startswith("✓ train")


def test_a_phase_that_fails_says_so():
    said = io.StringIO()
    with pytest.raises(ValueError), Screen(Console(file=said, width=80)) as screen, screen.phase("deploy"):
        raise ValueError
    assert said.getvalue().startswith("✗ deploy")
