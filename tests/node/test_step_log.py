"""Metrics by step on the volume: small however long a job trains, intact after kill -9, and never a
reason to stop.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from node_pods import IMAGE
from paddle_node.agent import output
from paddle_node.contract import Variable
from paddle_node.training.step_log import LineMetrics, StepLog

PROGRAM = """
import paddle_node, sys, time
time.monotonic = iter(range(0, 10**9, 20)).__next__  # Each line is due.
for step in range(int(sys.argv[1])):
    paddle_node.report(loss=1 / (1 + step), step=step)
print("reported", flush=True)
sys.stdin.read()
"""


def reporting(file: Path | str, steps: int, attempt: int = 1) -> subprocess.Popen[str]:
    """Starts a process that reports `steps` steps and then waits."""
    environ = {
        "PYTHONPATH": str(IMAGE),
        Variable.STEPS.value: str(file),
        Variable.ATTEMPT.value: str(attempt),
    }
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(steps)], env=environ, text=True, **pipes
    )
    process.said = process.stdout.readline()
    return process


def test_a_long_training_leaves_some_hundred_lines_with_every_attempts_ends_and_the_newest(
    tmp_path,
):
    file = tmp_path / "node_0" / "steps-0.jsonl"
    for attempt in (1, 2, 3):
        process = reporting(file, 3000, attempt)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with file.open("a") as torn:
            torn.write(f'{{"attempt": {attempt}, "st')
    lines = file.read_bytes().split(b"\n")
    points = [json.loads(line) for line in lines if line.endswith(b"}")]
    assert 100 < len(points) <= 500 and file.stat().st_size < 100_000
    assert [(one["attempt"], one["step"]) for one in points] == sorted(
        (one["attempt"], one["step"]) for one in points
    )
    ends = {
        attempt: [one["step"] for one in points if one["attempt"] == attempt]
        for attempt in (1, 2, 3)
    }
    assert [(steps[0], steps[-1]) for steps in ends.values()] == [(0, 2999)] * 3
    # The newest points have no gaps.
    assert ends[3][-20:] == list(range(2980, 3000))
    assert points[-1]["metrics"] == {"loss": round(1 / 3000, 9)}


ODD = """
import numpy, paddle_node
paddle_node.report(loss=numpy.float32(0.5), error=None, names=["a"], step=numpy.int64(3))
paddle_node.report(loss=10**400, step="four")
paddle_node.report(error=1.0)
"""


@pytest.mark.parametrize(
    "launched", [{"RANK": "1", "PADDLE_TRAINER_ID": "3"}, {"RANK": "3", "PADDLE_TRAINER_ID": "1"}]
)
def test_whatever_a_program_reports_never_ends_it_and_each_process_of_a_pod_has_its_file(
    tmp_path, launched
):
    # The variables that Paddle's launcher or torchrun sets when a script starts it in the pod of
    # rank 1.
    environ = {
        "PYTHONPATH": str(IMAGE),
        Variable.STEPS.value: str(tmp_path / "steps-1.jsonl"),
        **launched,
    }
    done = subprocess.run(
        [sys.executable, "-c", ODD], env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    refused = [
        line.partition(" is not a number and is left out: ")[0] for line in done.stdout.splitlines()
    ]
    assert refused == [f"paddle_node.report: {name}" for name in ("error", "names", "loss", "step")]
    first, last = map(json.loads, (tmp_path / "steps-3.jsonl").read_text().splitlines())
    assert (first["step"], first["metrics"]) == (3, {"loss": 0.5}) and "counted" not in first
    assert (last["step"], last["metrics"], last["counted"]) == (5, {"error": 1.0}, True)


def test_outside_of_a_pod_and_where_the_volume_takes_nothing_a_report_does_nothing(tmp_path):
    assert reporting("", 10).said == "reported\n"
    (tmp_path / "file").touch()
    assert reporting(tmp_path / "file" / "steps-0.jsonl", 10).said.endswith(
        "training continues without\n"
    )


PRINTS = """
import sys
for step in range(int(sys.argv[1])):
    print(f"step {step} loss {1 / (1 + step):.9f}" if step % int(sys.argv[2]) == 0 else "talks")
"""


@pytest.mark.parametrize("every", [1, 1000])
def test_metrics_of_a_program_that_prints_faster_than_anybody_reads_are_a_sample(
    tmp_path, monkeypatch, every
):
    """The patterns took three times as long as all the rest: 20 million lines held the program
    up.
    """
    monkeypatch.setattr(output, "say", lambda *lines: None)
    patterns = {"loss": r"loss ([0-9.]+)$", "step": r"^step (\d+)"}
    took = {}
    for kind, metrics in (("with", patterns), ("without", {})):
        printing = subprocess.Popen(
            [sys.executable, "-c", PRINTS, "200000", str(every)], stdout=subprocess.PIPE
        )
        log = output.Log(printing.stdout, "trainer 0")
        steps = StepLog(tmp_path / kind / "steps-0.jsonl", 1)
        log.become(tmp_path / kind / "log", "trainer 0", "attempt 1", LineMetrics(steps, metrics))
        began = time.process_time()
        log.run()
        took[kind] = time.process_time() - began
        assert printing.wait() == 0
    points = [
        json.loads(line) for line in (tmp_path / "with/steps-0.jsonl").read_text().splitlines()
    ]
    assert 199_000 <= points[-1]["step"] < 200_000
    assert 0 < points[-1]["metrics"]["loss"] <= 1
    assert took["with"] < 2 * took["without"]


def test_a_step_is_told_by_epoch_and_iteration(tmp_path):
    """PaddleClas counts iterations anew in each epoch: every epoch was the steps 0 to 3 again."""
    steps = StepLog(tmp_path / "steps-0.jsonl", 1)
    step = r"Epoch (?P<epoch>\d+)/\d+\]\[Iter: (?P<iteration>\d+)/(?P<iterations>\d+)\]"
    metrics = LineMetrics(steps, {"loss": "loss: ([0-9.]+)", "step": step})
    metrics.read(["[Train][Epoch 3/10][Iter: 2/4]lr(Cosine): 0.01, loss: 0.25"])
    steps.flush()
    last = json.loads((tmp_path / "steps-0.jsonl").read_text().splitlines()[-1])
    assert (last["step"], last["metrics"]) == (10, {"loss": 0.25})


BAR = """
import sys
for step in range(1, 1001):
    print(f"\\r {step // 10}%|#   | {step}/1000 [00:01<00:09, 9.8it/s]", end="")
    if step % 500 == 0:
        print(f"\\r           \\r{{'loss': '{1 / step}', 'epoch': '1'}}", flush=True)
"""


def test_a_progress_bar_hides_no_metrics_and_tells_the_step(tmp_path, monkeypatch):
    """What tqdm draws stands before the loss, in the same line: hundreds of bars in a long one."""
    monkeypatch.setattr(output, "say", lambda *lines: None)
    drawing = subprocess.Popen([sys.executable, "-c", BAR], stdout=subprocess.PIPE)
    assert drawing.wait() == 0  # The pipe holds all: no busy machine reads it in other parts.
    log = output.Log(drawing.stdout, "trainer 0")
    steps = StepLog(tmp_path / "steps-0.jsonl", 1)
    metrics = {"loss": "^{'loss': '?([0-9.]+)", "step": r"%\|.*\| (\d+)/"}
    log.become(tmp_path / "log", "trainer 0", "attempt 1", LineMetrics(steps, metrics))
    log.run()
    points = [json.loads(line) for line in (tmp_path / "steps-0.jsonl").read_text().splitlines()]
    assert points[-1]["step"] == 1000 and "counted" not in points[-1]
    assert points[0]["step"] == 500 and points[0]["metrics"] == {"loss": 0.002}
