"""The program of a training pod: finds the peers, stages the data, starts pserver and trainer, and
supervises them.

Imports nothing of CDK or cdk8s. Only the child processes import Paddle, so a pod is up in
milliseconds.
"""

import sys as _sys
from pathlib import Path as _Path

from paddle_node.contract import AGENT_PACKAGES as _AGENT_PACKAGES

# In a program's process they come last, behind its own versions.
if (_packages := str(_Path(_sys.prefix, _AGENT_PACKAGES))) not in _sys.path:
    _sys.path.append(_packages)


def report(step: int | None = None, **metrics: float) -> None:
    """Reports the metrics of a step to `paddle-aws board`: `paddle_node.report(loss=0.3)`. Outside
    a pod it does nothing.

    Any number of calls is fine: some hundred lines are kept, with the means. A value is anything
    that `float` accepts, such as a Tensor of one element; for any other it warns once and leaves it
    out. Calls are counted as steps unless `step` is given.
    """
    from paddle_node.training import step_log

    step_log.report(metrics, step)
