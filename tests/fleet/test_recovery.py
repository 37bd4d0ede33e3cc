"""What is left of training when processes end in the middle of it. Real Paddle: about 15 s a test."""

import json
import os
import signal

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def job(training_job, request):
    """quick_start whose trainers wait in the middle of the second pass until they are released."""
    job = training_job(pods=getattr(request, "param", 2), PASSES="5")
    source = job.make_sample("--lines", "2000")
    job.hold_at_record(1800 // job.pods * 3 // 2)
    job.split(source)
    return job


def assert_nothing_lost(job, passes: int) -> None:
    """Every pass once, every record of each shard in it, and a model as good as an undisturbed one."""
    shards = json.loads(job.folder.data_manifest.read_text())["shards"]
    for trainer, shard in enumerate(shards):
        records = sum(file["records"] for file in shard["files"])
        assert [(m["pass"], m["records"]) for m in job.metrics(trainer)] == [(p, records) for p in range(passes)]
    result = job.evaluate()
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["pass"] == passes - 1 and found["value"] > 0.7, found


@pytest.mark.parametrize("job", [3], indirect=True)
def test_sigterm_keeps_the_pass_so_far_and_the_next_run_goes_on_in_its_middle(job):
    job.start()
    job.wait_until_held()
    for process in job.processes:
        process.send_signal(signal.SIGTERM)
    job.wait_until(lambda: all("told to stop: the trainers may save" in log.read_text(errors="replace") for log in job.logs))
    job.release()
    assert job.wait() == [143, 143, 143], job.said()
    assert not job.folder.done(4).exists()
    position = json.loads((job.folder.output / "interrupted/position.json").read_text())
    job.start(RUN_ID="the-next")
    assert job.wait() == [0, 0, 0], job.said()
    assert_nothing_lost(job, 5)
    assert not (job.folder.output / "interrupted").exists()
    assert position["pass_number"] == 1 and all(each["read"] for each in position["positions"])


def test_a_killed_pserver_costs_the_pass_it_was_in_and_nothing_else(job):
    """tests/node/test_paddle_faults.py kills everything else, too, and compares the models."""
    job.start()
    job.wait_until_held()
    os.kill(job.child(1, "pserver"), signal.SIGKILL)
    job.release()
    assert job.wait()[0] == 0, job.said()
    assert_nothing_lost(job, 5)


def test_a_pserver_that_hangs_is_named_and_fails_the_probe_of_its_own_pod_alone(job):
    job.start()
    job.wait_until_held()
    stuck = job.child(1, "pserver")
    os.kill(stuck, signal.SIGSTOP)
    job.release()
    try:
        named = "waits for pserver 1, which has answered nothing"
        job.wait_until(lambda: named in job.probe(0, stall="3").stdout)
        job.wait_until(lambda: "this pod's pserver has answered nothing for" in job.probe(1, stall="3").stderr)
        assert "answers nothing" in job.logs[1].read_text(errors="replace")
        assert job.probe(0, stall="3").returncode == 0
        assert job.probe(1, stall="3").returncode == 1
    finally:
        os.kill(stuck, signal.SIGCONT)
    assert job.wait() == [0, 0], job.said()
    assert "pserver 1 answers again" in job.logs[1].read_text(errors="replace")
    assert_nothing_lost(job, 5)
