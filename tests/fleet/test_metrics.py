"""A trainer's metrics, and its model's metrics beside those of the best constant answer on the same
held-out rows.
"""

import json

import numpy as np
import pytest
from paddle_node.training.metrics import evaluate
from paddle_node.volume import pass_metrics


@pytest.mark.parametrize(
    ("names", "answers", "predictions"),
    [
        (["a", "b"], [0, 0, 1], [[1.0, 0.0]] * 3),
        ([], [1.0, 3.0], [[2.0], [2.0]]),
        ([], [1.0, 3.0], [[np.nan], [2.9]]),
    ],
)
def test_a_model_no_better_than_the_best_constant_answer_is_said_not_to_be(
    names, answers, predictions
):
    assert evaluate(answers, lambda batch: (names, batch, np.array(predictions)))["better"] is False


def test_a_line_that_was_cut_short_spoils_no_other(tmp_path):
    file = tmp_path / "node_0" / "metrics.jsonl"
    assert pass_metrics.read_recorded(file) == set()
    pass_metrics.append(file, {"pass": 0, "attempt": 1, "loss": 0.5})
    with file.open("a") as stream:
        stream.write('{"pass": 1, "att')  # The volume was full.
    assert pass_metrics.read_recorded(file) == {(0, 1)}
    pass_metrics.append(file, {"pass": 1, "attempt": 2, "loss": 0.25})
    assert pass_metrics.read_recorded(file) == {(0, 1), (1, 2)}
    first, cut, last = file.read_text().splitlines()
    assert (json.loads(first)["loss"], cut, json.loads(last)["loss"]) == (
        0.5,
        '{"pass": 1, "att',
        0.25,
    )
