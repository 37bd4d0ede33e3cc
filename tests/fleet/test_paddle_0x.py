"""0.x under the supervisor, with a stand-in for its binaries (tests/fleet/paddle_0x/paddle says what it is not)."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
BINARIES = Path(__file__).with_name("paddle_0x")


@pytest.fixture
def job(training_job):
    job = training_job(binaries=BINARIES, RUNTIME="paddle-0.x", PASSES="3")
    (job.folder.program("quick_start")).mkdir(parents=True)
    for index in range(3):
        job.folder.shard(index).mkdir(parents=True)
        (job.folder.shard(index) / "part").write_text("a record\n")
    return job


def trainer(pod: int) -> int:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(pod) and b"train" in (entry / "cmdline").read_bytes().split(b"\0"):
                return int(entry.name)
        except OSError:
            continue
    raise LookupError(f"{pod} runs no trainer")


def test_three_pods_train_together_and_the_pservers_end_behind_them(job):
    job.start(arguments=["--config_args=a b", "--test_period"])
    assert job.wait() == [0, 0, 0], job.said()
    assert [job.folder.done(number).is_file() for number in range(3)] == [True] * 3
    for index in range(3):
        log = job.folder.train_log(index).read_text()
        assert "trains alone" not in log and f"'--trainer_id={index}'" in log
        assert log.count("'--config_args=a b' '--test_period'\n") == 1
        assert "4 ports listen" in job.folder.server_log(index).read_text()


def test_a_killed_trainer_makes_all_start_again_behind_the_newest_pass(job):
    job.start()
    job.wait_for(job.folder.done(0))
    time.sleep(0.1)
    os.kill(trainer(job.processes[1].pid), signal.SIGKILL)
    assert job.wait()[0] == 0, job.said()
    assert job.folder.done(2).is_file()
    # A pass takes half a second, and a busy machine may have finished another one by then.
    assert re.search(r"'--start_pass=[12]'", job.folder.train_log(0).read_text())
