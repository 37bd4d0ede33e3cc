"""A trainer's metrics, and those of its model beside what the best constant answer gets on the same held-out rows."""

import json

import numpy as np
from paddle_node.training import pass_metrics
from paddle_node.training.metrics import evaluate


def found(names: list[str], answers: list[float], predictions: list[list[float]]) -> tuple[float, float, bool]:
    one = evaluate(answers, lambda batch: (names, batch, np.array(predictions)))
    return one["value"], one["baseline"], one["better"]


def test_a_model_is_better_only_above_the_best_constant_answer():
    a, b = [1.0, 0.0], [0.0, 1.0]
    assert found(["a", "b"], [0, 0, 0, 1], [a, a, a, a]) == (0.75, 0.75, False)
    assert found(["a", "b"], [0, 0, 0, 1], [a, a, a, b]) == (1.0, 0.75, True)
    assert found([], [1.0, 3.0], [[2.0], [2.0]]) == (1.0, 1.0, False)
    assert found([], [1.0, 3.0], [[1.0], [2.9]])[2] is True
    assert found([], [1.0, 3.0], [[np.nan], [2.9]])[2] is False
    assert evaluate([], None) == {}


def test_a_line_that_was_cut_short_spoils_no_other(tmp_path):
    file = tmp_path / "node_0" / "metrics.jsonl"
    assert pass_metrics.recorded(file) == set()
    pass_metrics.append(file, {"pass": 0, "attempt": 1, "loss": 0.5})
    with file.open("a") as stream:
        stream.write('{"pass": 1, "att')  # The volume was full.
    assert pass_metrics.recorded(file) == {(0, 1)}
    pass_metrics.append(file, {"pass": 1, "attempt": 2, "loss": 0.25})
    assert pass_metrics.recorded(file) == {(0, 1), (1, 2)}
    first, cut, last = file.read_text().splitlines()
    assert (json.loads(first)["loss"], cut, json.loads(last)["loss"]) == (0.5, '{"pass": 1, "att', 0.25)
