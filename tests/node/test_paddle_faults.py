"""Real Paddle, real kills: each fault ends in the undisturbed runs' result, measured here, or the test fails.

Asynchronous training is not the same twice, so "the same" means: accuracy and last pass's loss lie where one more
undisturbed run of the same data and seed would lie with 99.99 % probability, judged by the mean and the standard
deviation of five (Student's t), or, of losses, a tenth of the way to the pass before: five may lie closer together by chance
than ten do. Every record of every shard was trained in every pass that counts. The loss is the sharp one of the two: a model that
had lost a pass would be far outside, which is asserted, too.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from node_pods import Pods

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
IMAGE = PROJECT / "trainer_image"
PYTHON = PROJECT / ".venv-image/bin/python"
PROGRAM = PROJECT / "examples/quick_start"
PASSES, LINES = 3, 9000
RECORDS = LINES * 9 // 10 // 3
HOLDS = f"""
import itertools, json, os, time

_seen = itertools.count(1)
_holds, _place = json.loads(os.environ.get("STAND_IN", "{{}}")).get("holds", ["", ""])
_attempt, _index = os.environ.get("PADDLE_NODE_ATTEMPT"), os.environ.get("PADDLE_NODE_TRAINER_ID")
_sync = os.fsync


def _wait(moment):
    if (moment, _attempt) == (_holds, "1"):
        open(f"{{_place}}/held-{{moment}}-{{_index}}", "w").close()
        while True:
            time.sleep(1)


def _slow_sync(file):
    _wait("save")
    _sync(file)


def sample(labelled):
    seen = next(_seen)
    if seen == {RECORDS * 3 // 2}:
        _wait("pass")
    if seen == {RECORDS * 2} and _index == "0":
        os.fsync = _slow_sync
"""
"""What the program does beside its task, where a test kills: trainers of the first attempt wait in the middle of the second
pass, or trainer 0 where the pass it saves would first be synced to the volume. So a test is there on any machine."""
UNDISTURBED = 5
WIDTH = 15.544 * (1 + 1 / UNDISTURBED) ** 0.5
"""Standard deviations to both sides that one more run of a normal distribution stays within, 9,999 times in 10,000:
Student's t for the 4 degrees of freedom that five runs leave. Twenty comparisons fail by chance in one run out of 500."""


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """Makes three pods on a copy of one split, whose trainers wait at that moment."""
    place, made = tmp_path_factory.mktemp("split"), []
    subprocess.run([sys.executable, PROGRAM / "make_sample.py", place / "sample.tsv", "--lines", str(LINES)], check=True)
    (place / "quick_start").mkdir()
    text = (PROGRAM / "train.py").read_text()
    assert text.count("def sample(labelled):\n") == 1
    (place / "quick_start/train.py").write_text(text.replace("def sample(labelled):\n", HOLDS))
    environ = {"PATH": os.environ["PATH"], "OUT_DIR": str(place / "jobs/job"), "PROGRAM_FROM": str(place / "quick_start")}
    environ |= {"DATA_SOURCE": str(place / "sample.tsv"), "DATA_FORMAT": "lines"}
    environ |= {"SPLIT_COUNT": "3", "HOLD_OUT": "0.1", "SHUFFLE_SEED": "1"}
    subprocess.run([PYTHON, IMAGE / "split_data.py"], env=environ, check=True, capture_output=True)

    def make(moment: str) -> Pods:
        run = tmp_path_factory.mktemp("run")
        shutil.copytree(place / "jobs/job", run / "jobs/job")
        stand_in = {"passes": PASSES, "holds": [moment, str(run)]}
        pods = Pods(
            run, stand_in=stand_in, program=IMAGE / "start_paddle.py", interpreter=str(PYTHON), PEER_DEADLINE="60", SEED="1"
        )
        made.append(pods)
        pods.start()
        return pods

    yield make
    for pods in made:
        pods.end()


def result(pods: Pods) -> list[float]:
    """Accuracy, and the mean loss of each pass, the last one first, of a job in which every record was trained."""
    assert pods.codes() == [0, 0, 0], pods.logs()
    environ = pods.environment(0) | {"JOB_PATH": str(pods.volume / "jobs")}
    evaluation = subprocess.run(
        [PYTHON, IMAGE / "evaluate_pass.py"], env=environ, capture_output=True, text=True, cwd=pods.volume
    )
    assert evaluation.returncode == 0, evaluation.stderr
    found = json.loads(evaluation.stdout)
    assert found["pass"] == PASSES - 1
    losses = []
    for trainer, shard in enumerate(json.loads(pods.folder.data_manifest.read_text())["shards"]):
        lines = [json.loads(line) for line in pods.folder.metrics(trainer).read_text().splitlines()]
        # A pass that was trained again counts as trained the last time.
        metrics = {line["pass"]: line for line in lines}
        records = sum(file["records"] for file in shard["files"])
        assert {number: line["records"] for number, line in metrics.items()} == dict.fromkeys(range(PASSES), records)
        losses.append([metrics[number]["loss"] for number in reversed(range(PASSES))])
    return [found["value"], *map(statistics.mean, zip(*losses, strict=True))]


def fits(value: float, found: tuple[float, ...], least: float = 0.0) -> bool:
    """Whether one more undisturbed run might come to it; `least` is near enough in any case."""
    return abs(value - statistics.mean(found)) <= max(least, WIDTH * statistics.stdev(found))


@pytest.fixture(scope="module")
def undisturbed(training) -> list[tuple[tuple[float, ...], float]]:
    """Accuracies and last losses, each with what is near enough."""
    accuracies, last, before, _ = zip(*(result(training("")) for _ in range(UNDISTURBED)), strict=True)
    print("undisturbed: accuracy", *accuracies, "loss", *last, "before", *before)
    near = (statistics.mean(before) - statistics.mean(last)) / 10
    assert not any(fits(loss, last, near) for loss in before), "a lost pass would not be noticed"
    return [(accuracies, 0.0), (last, near)]


@pytest.mark.parametrize("moment", ["pass", "save"])
@pytest.mark.parametrize("victim", ["trainer 0", "trainer 1", "server 1", "pod 1", "pod 0"])
def test_kill_9(training, undisturbed, victim: str, moment: str) -> None:
    pods = training(moment)
    role, number = victim.split()
    index = int(number)
    pods.wait_until(lambda: len(list(pods.volume.glob("held-*"))) == (3 if moment == "pass" else 1))
    # The first pass is there, of the second nothing, or a half.
    assert pods.folder.done(0).exists() and not list(pods.folder.output.glob("attempts/*/pass-00001/done"))
    assert len(list(pods.folder.output.glob("attempts/*/pass-00001"))) == (moment == "save")
    if role == "pod":
        pods.kill(index)
        pods.wait_for((index + 1) % 3, "lost")
        pods.start(index)
    else:
        os.kill(pods.child(index, role), signal.SIGKILL)
    pods.wait_for((index + 1) % 3, "pass=1 attempt=2")
    for value, (found, near) in zip(result(pods), undisturbed, strict=False):
        assert fits(value, found, near), f"{value} is not within {found}"
    assert len(pods.attempts()) == 2
