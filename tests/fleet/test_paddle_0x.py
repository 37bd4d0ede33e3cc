"""0.x under the agent, with a stand-in for its binaries (tests/fleet/paddle_0x/paddle says what it is not)."""

import os
import signal
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
BINARIES = Path(__file__).with_name("paddle_0x")


def test_three_pods_train_together_and_start_again_behind_the_newest_pass_where_a_trainer_is_killed(training_job):
    job = training_job(binaries=BINARIES, RUNTIME="paddle-0.x", PASSES="3")
    (job.folder.program("quick_start")).mkdir(parents=True)
    for index in range(3):
        job.folder.shard(index).mkdir(parents=True)
        (job.folder.shard(index) / "part").write_text("a record\n")
    held = job.folder.root / "held"
    held.touch()
    job.start(arguments=["--config_args=a b", "--test_period"])
    job.wait_until(job.folder.done(0).exists)
    os.kill(job.child(1, "trainer"), signal.SIGKILL)
    job.wait_for(0, "attempt 2: trainer 0 is process")
    held.unlink()
    job.end_with()
    assert [job.folder.done(number).is_file() for number in range(3)] == [True] * 3
    for index in range(3):
        log = job.folder.train_log(index).read_text()
        assert "trains alone" not in log and f"'--trainer_id={index}'" in log
        # A pserver ends behind the trainers of all, once in each attempt.
        assert log.count("'--config_args=a b' '--test_period'") == 2 and "'--start_pass=1'" in log
        assert "4 ports listen" in job.folder.server_log(index).read_text()
