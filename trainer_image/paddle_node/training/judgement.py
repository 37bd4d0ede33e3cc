"""How good predictions are, by accuracy or the root of the mean squared error, beside what the best constant answer would get."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np


def judge(names: Sequence[str], answers: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Any]:
    """`predictions` are arrays of a batch each; `names` are the classes' names, none where answers are numbers."""
    together = np.concatenate(predictions)
    metric, value, baseline, of = _accuracy(names, answers, together) if names else _error(answers, together)
    value, baseline = round(value, 4), round(baseline, 4)
    return {
        "metric": metric,
        "value": value,
        "better": value > baseline if names else value < baseline,
        "baseline": baseline,
        "baseline_of": f"always guessing {of}",
        "records": len(answers),
    }


def _accuracy(names: Sequence[str], answers: Sequence[Any], scores: Any) -> tuple[str, float, float, str]:
    commonest, count = Counter(map(int, answers)).most_common(1)[0]
    of = names[commonest] if 0 <= commonest < len(names) else "what training never saw"
    return "accuracy", float((np.argmax(scores, axis=1) == np.array(answers)).mean()), count / len(answers), of


def _error(answers: Sequence[Any], guesses: Any) -> tuple[str, float, float, str]:
    truth = np.array(answers, dtype=np.float64)
    error = float(np.sqrt(((guesses.reshape(-1) - truth) ** 2).mean()))
    return "rmse", error, float(truth.std()), f"{truth.mean():.2f}"
