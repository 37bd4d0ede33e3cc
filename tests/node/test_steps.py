"""Steps as a program's lines tell them and as the volume keeps them: one form, one reader."""

import json
import math
from pathlib import Path

import pytest
from paddle_node.training.step_log import LineMetrics, StepLog
from paddle_node.volume import steps

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
