"""What is left of training when processes end in the middle of it. Real Paddle: about 15 s a test."""

import json
import os
import re
import signal
import time

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def job(training_job):
    """quick_start with a pass that takes a second on any machine, so that a test can be in the middle of one."""
    job = training_job(PASSES="5")
    source = job.make_sample("--lines", "2000")
    text = (job.program / "train.py").read_text()
    job.program = job.place / "unhurried"
    job.program.mkdir()
    slower = text.replace("    label, text = labelled\n", "    label, text = labelled\n    time.sleep(0.0015)\n")
    assert slower != text
    (job.program / "train.py").write_text(slower.replace("import paddle\n", "import time\n\nimport paddle\n", 1))
    job.split(source)
    return job


def in_the_middle_of_the_second_pass(job) -> None:
    job.wait_for(job.folder.done(0))
    time.sleep(0.5)


def child(job, pod: int, role: str) -> int:
    """Process id of a pod's pserver or trainer, as its supervisor says."""
    found = re.findall(rf"{role} {pod} is process (\d+)", job.logs[pod].read_text(errors="replace"))
    assert found, job.said()
    return int(found[-1])


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


def test_sigterm_keeps_the_pass_so_far_and_the_next_run_goes_on_in_its_middle(job):
    job.start()
    in_the_middle_of_the_second_pass(job)
    for process in job.processes:
        process.send_signal(signal.SIGTERM)
    assert job.wait() == [143, 143, 143], job.said()
    assert not job.folder.done(4).exists()
    position = json.loads((job.folder.output / "interrupted/done").read_text())
    job.start(RUN_ID="the-next")
    assert job.wait() == [0, 0, 0], job.said()
    assert_nothing_lost(job, 5)
    assert not (job.folder.output / "interrupted").exists()
    assert position["pass"] in range(1, 5) and any(each["read"] for each in position["trainers"])


def test_a_killed_pserver_costs_the_pass_it_was_in_and_nothing_else(job):
    """tests/node/test_paddle_faults.py kills everything else, too, and compares the models."""
    job.start()
    in_the_middle_of_the_second_pass(job)
    os.kill(child(job, 1, "pserver"), signal.SIGKILL)
    assert job.wait()[0] == 0, job.said()
    assert_nothing_lost(job, 5)


def test_a_pserver_that_hangs_is_named_and_fails_the_probe_of_its_own_pod_alone(job):
    job.start()
    in_the_middle_of_the_second_pass(job)
    stuck = child(job, 1, "pserver")
    os.kill(stuck, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + 60
        while "answers nothing" not in job.logs[1].read_text(errors="replace"):
            assert time.monotonic() < deadline, job.said()
            time.sleep(0.1)
        time.sleep(3)
        others = job.probe(0, stall="1")
        assert others.returncode == 0
        assert re.search(r"waits for (trainer|pserver) \d", others.stdout), others
        assert any("waits for pserver 1, which has answered nothing" in job.probe(pod, stall="1").stdout for pod in (0, 2))
        own = job.probe(1, stall="1")
        assert own.returncode == 1 and "this pod's pserver has answered nothing for" in own.stderr, own
    finally:
        os.kill(stuck, signal.SIGCONT)
    assert job.wait() == [0, 0, 0], job.said()
    assert "pserver 1 answers again" in job.logs[1].read_text(errors="replace")
    assert_nothing_lost(job, 5)
