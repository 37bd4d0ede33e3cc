"""What is left of training when processes end in the middle of it. Real Paddle: about 20 s a test."""

import json
import os
import signal
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def child(pod: int, role: str) -> int:
    """Process id of a pod's pserver or trainer."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            environ = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == str(pod) and f"TRAINING_ROLE={role}".encode() in environ:
            return int(entry.name)
    raise LookupError(f"{pod} runs no {role}")


def assert_nothing_lost(job, passes: int) -> None:
    """Every pass once, every record of each shard in it, and a model as good as an undisturbed one."""
    shards = json.loads(job.folder.data_manifest.read_text())["shards"]
    for trainer, shard in enumerate(shards):
        records = sum(file["records"] for file in shard["files"])
        assert [(m["pass"], m["records"]) for m in job.metrics(trainer)] == [(p, records) for p in range(passes)]
    result = job.evaluate()
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["pass"] == passes - 1 and found["value"] > 0.8, found


def test_sigterm_keeps_the_pass_so_far_and_the_next_run_goes_on_in_its_middle(training_job):
    job = training_job(PASSES="5")
    job.split(job.make_sample("--lines", "4000"))
    job.start()
    job.wait_for(job.folder.done(0))
    for process in job.processes:
        process.send_signal(signal.SIGTERM)
    assert job.wait() == [143, 143, 143], job.said()
    assert not job.folder.done(4).exists()
    position = json.loads((job.folder.output / "interrupted/position.json").read_text())
    job.start(RUN_ID="the-next")
    assert job.wait() == [0, 0, 0], job.said()
    assert_nothing_lost(job, 5)
    assert not (job.folder.output / "interrupted").exists()
    assert position["pass_number"] in range(1, 5) and any(each["read"] for each in position["positions"])


@pytest.mark.parametrize("role", ["TRAINER", "PSERVER"])
def test_a_killed_process_costs_the_pass_it_was_in_and_nothing_else(training_job, role: str):
    job = training_job(PASSES="5")
    job.split(job.make_sample("--lines", "4000"))
    job.start()
    job.wait_for(job.folder.done(0))
    os.kill(child(job.processes[1].pid, role), signal.SIGKILL)
    assert job.wait()[0] == 0, job.said()
    assert_nothing_lost(job, 5)
