"""0.x under the agent, with a stand-in for its binaries (tests/fleet/paddle_0x/paddle says what it is not)."""

import os
import signal
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


def test_three_pods_train_together_and_the_pservers_end_behind_them(job):
    job.start(arguments=["--config_args=a b", "--test_period"])
    job.ends()
    assert [job.folder.done(number).is_file() for number in range(3)] == [True] * 3
    for index in range(3):
        log = job.folder.train_log(index).read_text()
        assert "trains alone" not in log and f"'--trainer_id={index}'" in log
        assert log.count("'--config_args=a b' '--test_period'\n") == 1
        assert "4 ports listen" in job.folder.server_log(index).read_text()


def test_a_killed_trainer_makes_all_start_again_behind_the_newest_pass(job):
    held = job.folder.root / "held"
    held.touch()
    job.start()
    job.wait_until(job.folder.done(0).exists)
    os.kill(job.child(1, "trainer"), signal.SIGKILL)
    job.wait_until(lambda: "attempt 2: trainer 0 is process" in job.logs[0].read_text(errors="replace"))
    held.unlink()
    assert job.wait()[0] == 0, job.said()
    assert job.folder.done(2).is_file()
    assert "'--start_pass=1'" in job.folder.train_log(0).read_text()
