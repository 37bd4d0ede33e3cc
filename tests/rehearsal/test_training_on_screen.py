"""What a user sees of a training: a row for each pass that every trainer went through, in any order of their lines."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from paddle_node.contract import JobFolder
from paddle_node.training import pass_metrics
from rich.console import Console

from k8s_charts.spec import TrainingJob
from rehearsal.paddle_job import Measured
from rehearsal.rehearse import PaddleJobResults
from rehearsal.screen import Screen
from rehearsal.summary import summary
from rehearsal.training_screen import TrainingScreen, outcome


@pytest.fixture
def folder(tmp_path):
    return JobFolder(tmp_path / "quick-start")


class WritingPod:
    """As much of a pod as the screen asks for."""

    def __init__(self, file, trainer):
        self.file = file
        self.facts = SimpleNamespace(name=f"trainer-{trainer}", address="127.0.0.1")
        self.template = SimpleNamespace(containers=[SimpleNamespace(name="trainer")])

    def log(self, container):
        return self.file

    def say(self, text):
        with self.file.open("a") as log:
            log.write(text)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("trainers", [3, 16])
def test_passes_are_rows_as_soon_as_every_trainer_is_through(tmp_path, width, trainers):
    pods = [WritingPod(tmp_path / f"{trainer}.log", trainer) for trainer in range(trainers)]
    said, now = io.StringIO(), []
    with Screen(Console(file=said, width=width)) as screen, screen.phase("train") as phase:
        phase.now = now.append
        shown = TrainingScreen(phase, screen)
        for trainer, pod in enumerate(pods):
            shown.pod_started(pod, trainer)
        pods[0].say("[trainer 0] pass=0 passes=3 attempt=1 trainers=3 step=2 loss=2.0 records=20 shard=40 seconds=1.0\nnoise\n")
        shown.show()
        assert now[-1].startswith("pass 0 (the last is 2), step 2, loss 2.0000, ") and now[-1].endswith(
            " records a second, 5 s left"
        )
        for attempt, loss in ((1, 9.5), (2, 1.25)):
            for trainer, pod in enumerate(pods):
                facts = {
                    "pass": 0,
                    "attempt": attempt,
                    "trainers": trainers,
                    "loss": loss,
                    "records": 40,
                    "seconds": 2.0,
                    "time": 1e9,
                }
                pod.say(f"[trainer {trainer}] {pass_metrics.said(facts)} time=1.0")
            shown.show()  # Half a line is read when it is whole.
            assert len(shown.table.passes.complete) == attempt - 1
            for pod in pods:
                pod.say("\n")
            shown.show()
        phase.result = "1 pass"
    header, first, again, end = said.getvalue().splitlines()
    assert max(map(len, (header, first, again, end))) <= width
    assert [row.split()[:2] for row in (first, again)] == [["0", "9.5000"], ["0", "1.2500"]] and end.startswith("✓ train")
    (one,) = shown.table.passes.in_order
    assert outcome([one, one], 1, 1) == "2 passes by 1 trainer, loss 1.250 -> 1.250, 1 pod replaced"


def test_a_phase_that_fails_says_so():
    said = io.StringIO()
    with pytest.raises(ValueError), Screen(Console(file=said, width=80)) as screen, screen.phase("deploy"):
        raise ValueError
    assert said.getvalue().startswith("✗ deploy")


@pytest.mark.parametrize(
    ("value", "said", "colour"),
    [(0.9, "trained and gone again", "\x1b[32m"), (0.5, "trained, but no better than a constant guess", "\x1b[33m")],
)
def test_a_model_that_learned_nothing_is_not_all_green(value, said, colour):
    job = TrainingJob.parse({"name": "mine", "trainers": 1, "data": {"source": "a"}})
    measured = Measured("accuracy", value, baseline=0.5, first_loss=1.0, last_loss=0.9)
    console = Console(width=100, force_terminal=True, color_system="standard", file=io.StringIO())
    console.print(summary(PaddleJobResults(job, measured, Path("logs")), [], 1.0))
    frame = next(line for line in console.file.getvalue().splitlines() if said in line)
    assert frame.startswith(colour)
