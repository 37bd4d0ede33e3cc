"""A program on role makers and gloo, by the line that starts it on one machine. Real Paddle: about 20 s."""

import json
import os
import signal
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
COMMAND = ["fleetrun", "--server_num=1", "--worker_num=1", "train.py", "--output", "{output}", "--hold", "{output}/go"]


def test_role_makers_have_gloo_and_begin_anew_after_a_killed_trainer(training_job):
    job = training_job(
        HERE / "role_maker_program", pods=2, RUNTIME="fleet-ps", COMMAND=json.dumps(COMMAND), PROGRESS="output/epoch-*.json"
    )
    job.split(job.make_sample("--lines", "20"))
    job.start()
    job.wait_until((job.folder.output / "epoch-0.json").exists)
    os.kill(job.child(1, "trainer"), signal.SIGKILL)
    (job.folder.output / "go").touch()
    said = job.end_with()
    # 20 steps of one trainer and 21 of the other, added up by gloo in both attempts.
    assert json.loads((job.folder.output / "epoch-2.json").read_text())["steps"] == [41]
    assert "--server_num 1, --worker_num 1 in the command: the job's own settings win" in said
    logs = [job.folder.train_log(trainer).read_text() for trainer in range(2)]
    assert all("epoch 2 of trainer" in log and "SIGABRT" not in log for log in logs)
