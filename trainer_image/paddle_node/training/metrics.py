"""How good predictions are, by accuracy or the root of the mean squared error, beside what the best constant answer gets."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np


def evaluate(names: Sequence[str], answers: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Any]:
    """`predictions` are arrays of a batch each; `names` are the classes' names, none where answers are numbers.

    Empty without answers.
    """
    if not answers:
        return {}
    found = np.concatenate(predictions)
    if names:
        metric, value = "accuracy", float((np.argmax(found, axis=1) == np.array(answers)).mean())
        commonest, count = Counter(map(int, answers)).most_common(1)[0]
        constant = names[commonest] if 0 <= commonest < len(names) else "what training never saw"
        baseline = count / len(answers)
    else:
        truth = np.array(answers, dtype=np.float64)
        metric, value = "rmse", float(np.sqrt(((found.reshape(-1) - truth) ** 2).mean()))
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
