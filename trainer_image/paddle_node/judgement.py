"""How good predictions are, by accuracy or the root of the mean squared error, beside what the best constant answer would get."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np


def judge(names: Sequence[str], answers: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Any]:
    """`predictions` are arrays of a batch each; `names` are the classes' names, none where answers are numbers."""
    together = np.concatenate(predictions)
    return _accuracy(names, answers, together) if names else _error(answers, together)


def _accuracy(names: Sequence[str], answers: Sequence[Any], scores: Any) -> dict[str, Any]:
    right = round(float((np.argmax(scores, axis=1) == np.array(answers)).mean()), 4)
    commonest, count = Counter(map(int, answers)).most_common(1)[0]
    baseline = round(count / len(answers), 4)
    return {
        "metric": "accuracy",
        "value": right,
        "better": right > baseline,
        "baseline": baseline,
        "baseline_of": f"always guessing {names[commonest] if 0 <= commonest < len(names) else 'what training never saw'}",
        "records": len(answers),
    }


def _error(answers: Sequence[Any], guesses: Any) -> dict[str, Any]:
    truth = np.array(answers, dtype=np.float64)
    error = round(float(np.sqrt(((guesses.reshape(-1) - truth) ** 2).mean())), 4)
    baseline = round(float(truth.std()), 4)
    return {
        "metric": "rmse",
        "value": error,
        "better": error < baseline,
        "baseline": baseline,
        "baseline_of": f"always guessing {truth.mean():.2f}",
        "records": len(answers),
    }
