"""Real Paddle, real kills: each fault ends in the undisturbed runs' result, measured here, or the test fails.

Asynchronous training is not the same twice, so "the same" means: within the spread of five undisturbed runs with
the same data and seed, and every record of every shard in every pass that counts. About four minutes on two cores.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from node_pods import Pods

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
IMAGE = PROJECT / "trainer_image"
PYTHON = PROJECT / ".venv-image/bin/python"
PROGRAM = PROJECT / "examples/quick_start"
PASSES = 3
LINES = 9000
UNDISTURBED = 5


@pytest.fixture(scope="module")
def volume(tmp_path_factory) -> Path:
    """A job's folder after the real split: each run gets a copy."""
    place = tmp_path_factory.mktemp("split")
    sample = place / "sample.tsv"
    subprocess.run([sys.executable, PROGRAM / "make_sample.py", sample, "--lines", str(LINES)], check=True)
    environ = {
        "PATH": os.environ["PATH"],
        "OUT_DIR": str(place / "jobs/job"),
        "SPLIT_COUNT": "3",
        "DATA_SOURCE": str(sample),
        "DATA_FORMAT": "lines",
        "HOLD_OUT": "0.1",
        "SHUFFLE_SEED": "1",
        "PROGRAM_FROM": str(PROGRAM),
    }
    subprocess.run([PYTHON, IMAGE / "split_data.py"], env=environ, check=True, capture_output=True)
    return place / "jobs/job"


@pytest.fixture
def training(tmp_path, volume):
    """Makes three pods on a copy of the split data."""
    made = []

    def make(name: str = "run") -> Pods:
        place = tmp_path / name
        shutil.copytree(volume, place / "jobs/job")
        pods = Pods(
            place,
            stand_in={"passes": PASSES},
            program=IMAGE / "start_paddle.py",
            interpreter=str(PYTHON),
            PEER_DEADLINE="60",
            SEED="1",
        )
        made.append(pods)
        return pods

    yield make
    for pods in made:
        pods.end()


def accuracy(pods: Pods) -> float:
    environ = pods.environment(0) | {"JOB_PATH": str(pods.volume / "jobs")}
    result = subprocess.run([PYTHON, IMAGE / "evaluate_pass.py"], env=environ, capture_output=True, text=True, cwd=pods.volume)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["pass"] == PASSES - 1
    return found["value"]


def assert_every_record_was_trained(pods: Pods) -> None:
    shards = json.loads(pods.folder.data_manifest.read_text())["shards"]
    for trainer, shard in enumerate(shards):
        records = sum(file["records"] for file in shard["files"])
        lines = [json.loads(line) for line in pods.folder.metrics(trainer).read_text().splitlines()]
        # A pass that was trained again counts as trained the last time.
        assert {line["pass"]: line["records"] for line in lines} == dict.fromkeys(range(PASSES), records)


@pytest.fixture(scope="module")
def spread(tmp_path_factory, volume) -> tuple[float, float]:
    """Lowest and highest accuracy of undisturbed runs, widened by their distance."""
    found = []
    for number in range(UNDISTURBED):
        place = tmp_path_factory.mktemp(f"undisturbed-{number}")
        shutil.copytree(volume, place / "jobs/job")
        pods = Pods(place, stand_in={"passes": PASSES}, program=IMAGE / "start_paddle.py", interpreter=str(PYTHON), SEED="1")
        try:
            pods.start()
            assert pods.codes(60) == [0, 0, 0], pods.logs()
            found.append(accuracy(pods))
        finally:
            pods.end()
    width = max(max(found) - min(found), 0.01)
    print(f"undisturbed: {sorted(found)}")
    return min(found) - width, max(found) + width


def in_the_middle_of_a_pass(pods: Pods) -> None:
    wait(lambda: pods.folder.done(0).exists(), pods)
    time.sleep(0.3)
    assert not pods.folder.pass_dir(1).exists()


def during_a_save(pods: Pods) -> None:
    wait(lambda: pods.folder.pass_dir(1).exists(), pods)
    assert not pods.folder.done(1).exists()


def wait(condition, pods: Pods) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, pods.logs()
        time.sleep(0.005)


@pytest.mark.parametrize("moment", [in_the_middle_of_a_pass, during_a_save])
@pytest.mark.parametrize("victim", ["trainer 0", "trainer 1", "server 1", "pod 1", "pod 0"])
def test_kill_9(training, spread, victim: str, moment) -> None:
    pods = training()
    pods.start()
    role, number = victim.split()
    index = int(number)
    moment(pods)
    process = None if role == "pod" else pods.child(index, role)
    killed = time.monotonic()
    if process is None:
        pods.kill(index)
        pods.wait_for((index + 1) % 3, "lost", 10)
        pods.start(index)
    else:
        os.kill(process, signal.SIGKILL)
    pods.wait_for((index + 1) % 3, r"attempt=2|pass=1 .*attempt=2", 60)
    recovered = time.monotonic() - killed
    assert pods.codes(90) == [0, 0, 0], pods.logs()
    lowest, highest = spread
    found = accuracy(pods)
    print(f"{victim} {moment.__name__}: {found} of {lowest:.3f} to {highest:.3f}; the next pass after {recovered:.1f} s")
    assert lowest <= found <= highest
    assert_every_record_was_trained(pods)
    assert len(pods.attempts()) == 2
