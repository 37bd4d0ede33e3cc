"""Steps as a program's lines tell them and as the volume keeps them: one form, one reader."""

import json
import math
from pathlib import Path

import pytest
from paddle_node.training.step_log import LineMetrics, StepLog
from paddle_node.volume import attempts, progress, steps
from paddle_node.volume.attempts import RecordedAttempt
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.progress import Progress

PATTERNS = {
    "step": r"step (\d+)",
    "loss": r"loss (\S+)",
    "val_acc": r"val_acc ([0-9.]+)",
    "speed": r"speed ([0-9.]+)",
}


def read(tmp_path: Path, *bursts: list[str]) -> list[steps.Step]:
    """What the volume has of lines that came together."""
    file = tmp_path / "steps-0.jsonl"
    metrics = LineMetrics(StepLog(file, 3), PATTERNS)
    for burst in bursts:
        metrics.read(burst)
    metrics.log.flush()
    return steps.read_newest(file, 3)


@pytest.mark.parametrize("count", [10, 60, 5000])
def test_of_lines_that_come_together_the_last_one_of_each_pattern_counts(tmp_path, count):
    burst = [f"step {step} loss {1 / step:.4f}" for step in range(1, count + 1)]
    burst.insert(count // 3, "speed 17.5")
    told = read(tmp_path, [*burst, "val_acc 0.9312", "the model is in output/"])
    assert (told[-1].step, told[-1].metrics["val_acc"]) == (count, 0.9312)
    assert told[-1].metrics["speed"] == 17.5


def test_a_step_of_which_nothing_else_is_known_is_told_too(tmp_path):
    newest = read(tmp_path, ["step 1 loss 0.5"], ["step 7", "step 8"])[-1]
    assert (newest.step, newest.metrics) == (8, {})


@pytest.mark.parametrize("word", ["nan", "inf", "-inf"])
def test_a_value_that_is_not_finite_is_kept_with_the_step_at_which_it_came(tmp_path, word):
    lines = [f"step {step} loss {0.5 if step < 5 else word}" for step in range(1, 9)]
    told = read(tmp_path, *([line] for line in lines))
    first = next(step for step in told if not math.isfinite(step.metrics["loss"]))
    assert (first.step, repr(first.metrics["loss"])) == (5, word)
    assert [step.metrics["loss"] for step in told if step.step < 5] == [0.5] * 2
    # A browser parses it.
    for line in (tmp_path / "steps-0.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_what_earlier_releases_wrote_is_read():
    (old,) = steps.parse(b'{"attempt": 1, "step": 4, "time": 9.5, "metrics": {"loss": null}}\n{"at')
    assert (old.attempt, old.step, old.time) == (1, 4, 9.5) and math.isnan(old.metrics["loss"])


def report(number: int, read: int, at: float, loss: float = 0.5, attempt: int = 2) -> str:
    """A line of rank 0 of three, on a program with passes of 100 records, of ten a step."""
    step = max(1, read // 10)
    far = {"pass": number, "passes": 4, "pass_step": step, "records": read, "shard": 100}
    line = {"attempt": attempt, "step": 10 * number + step, "time": at, "trainers": 3, **far}
    return json.dumps(line | {"metrics": {"loss": loss}})


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "attempt 2"),
        ([report(0, 10, 5.0, attempt=1)], "attempt 2"),
        ([report(1, 40, 10.0)], "pass 1 (the last is 3), step 4, loss 0.5000"),
        # Passes count on: 80 records in 4 s, by each of three trainers.
        (
            [report(0, 60, 10.0), report(1, 40, 14.0, loss=math.nan)],
            "pass 1 (the last is 3), step 4, loss nan, loss is NaN since step 14, "
            "60 records a second, 13 s left",
        ),
        (
            [report(0, 60, 10.0), report(1, 100, 17.0)],
            "pass 1 (the last is 3), complete, loss 0.5000, 60 records a second, 10 s left",
        ),
        (
            ['{"attempt": 2, "step": 7, "time": 3, "metrics": {"acc": 0.5}}', "torn {"],
            "attempt 2, step 7, loss 0.5000",
        ),
    ],
)
def test_one_progress_for_every_kind_of_program(tmp_path, lines, words):
    job = JobFolder(tmp_path)
    job.run_state.mkdir(parents=True)
    record = [
        RecordedAttempt(1, "run", 1.0, cause="a pod was lost"),
        RecordedAttempt(2, "run", 2.0),
    ]
    attempts.write(job, record, {})
    job.node(0).mkdir()
    job.steps(0, 0).write_text("\n".join(lines))
    far = progress.read_folder(job)
    assert (str(far), far.last_end) == (words, "a pod was lost")
    # The agent's line tells the same, and JSON of it is JSON.
    told = Progress.parse(f"[agent 0] {far.line()}")
    assert repr(told) == repr(far) and Progress.parse(far.line()) is None
    json.dumps(far.as_json(), allow_nan=False)


HOSTILE = (
    ("time", -1e11),
    ("time", 1e308),
    ("step", 10**400),
    ("attempt", True),
    ("metrics", [1]),
    ("shard", "x"),
    ("passes", -(10**30)),
    ("metrics", {"loss": 1e308, "\x1b[2J": 10**400, "x" * 9999: True}),
)


@pytest.mark.parametrize(("name", "value"), HOSTILE)
def test_what_a_program_writes_into_the_file_neither_stops_an_agent_nor_spoils_json(
    tmp_path, name, value
):
    job = JobFolder(tmp_path)
    job.run_state.mkdir(parents=True)
    attempts.write(job, [RecordedAttempt(2, "run", 2.0)], {})
    job.node(0).mkdir()
    bad = json.loads(report(1, 40, 10.0)) | {name: value}
    lines = [report(0, 60, 10.0), json.dumps(bad), "[" * 10_000, "\xff", "null"]
    job.steps(0, 0).write_text("\n".join(lines))
    far = progress.read_folder(job)
    json.dumps(far.as_json(), allow_nan=False)
    assert len(str(far)) < 200 and str(far).isprintable()
    assert repr(Progress.parse(f"[agent 0] {far.line()}")) == repr(far)


@pytest.mark.parametrize("value", ['"58"', "[]", "{}", "1e400", "null"])
def test_a_line_that_only_looks_like_the_agents_reports_nothing(value):
    line = f'[agent 0] progress of its own  {{"progress": {{"attempt": 1, "step": {value}}}}}'
    told = Progress.parse(line)
    assert told is None or told.step is None
