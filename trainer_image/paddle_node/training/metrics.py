"""Measures predictions by accuracy or root mean squared error, and compares them with the best
constant answer.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

BATCH = 500


def evaluate(
    samples: Iterable[Any], predict: Callable[[list[Any]], tuple[Sequence[str], Any, Any]]
) -> dict[str, Any]:
    """Returns the metric and its baseline; empty without samples.

    `predict` turns a batch into the names of the classes (none if answers are numbers), the answers
    and the predictions.
    """
    names: Sequence[str] = ()
    answers: list[Any] = []
    predictions = []
    iterator = iter(samples)
    while batch := list(islice(iterator, BATCH)):
        names, right, predicted = predict(batch)
        answers += list(np.asarray(right).reshape(-1))
        predictions.append(np.asarray(predicted))
    if not answers:
        return {}
    guesses = np.concatenate(predictions)
    if names:
        metric, value = "accuracy", float((np.argmax(guesses, axis=1) == np.array(answers)).mean())
        commonest, count = Counter(map(int, answers)).most_common(1)[0]
        constant = names[commonest] if 0 <= commonest < len(names) else "what training never saw"
        baseline = count / len(answers)
    else:
        truth = np.array(answers, dtype=np.float64)
        metric, value = "rmse", float(np.sqrt(((guesses.reshape(-1) - truth) ** 2).mean()))
        baseline, constant = float(truth.std()), f"{truth.mean():.2f}"
    value, baseline = round(value, 4), round(baseline, 4)
    return {
        "metric": metric,
        "value": value,
        "better": value > baseline if names else value < baseline,
        "baseline": baseline,
        "baseline_of": f"always guessing {constant}",
        "records": len(answers),
    }
