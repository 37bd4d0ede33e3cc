"""A metric stands beside what the best constant answer gets on the same held-out rows."""

import numpy as np
from paddle_node.training.metrics import evaluate


def test_a_model_is_better_only_above_the_best_constant_answer():
    scores = {"a": [[1.0, 0.0]] * 4, "right": [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]}
    found = {name: evaluate(["a", "b"], [0, 0, 0, 1], [np.array(one)]) for name, one in scores.items()}
    assert [(one["value"], one["baseline"], one["better"]) for one in found.values()] == [(0.75, 0.75, False), (1.0, 0.75, True)]
    mean = evaluate([], [1.0, 3.0], [np.array([[2.0], [2.0]])])
    assert (mean["value"], mean["baseline"], mean["better"]) == (1.0, 1.0, False)
    assert evaluate([], [1.0, 3.0], [np.array([[1.0], [2.9]])])["better"] is True
    assert evaluate([], [1.0, 3.0], [np.array([[np.nan], [2.9]])])["better"] is False
