"""What runs in a training pod: find the peers, stage the data, start pserver and trainer, supervise them.

Imports nothing of CDK or cdk8s. Only the child processes import Paddle, so a pod is up in milliseconds.
"""


def report(step: int | None = None, **metrics: float) -> None:
    """Tells `paddle-aws board` the metrics of a step: `paddle_node.report(loss=0.3)`. Outside of a pod nothing happens.

    Any number of calls is fine: some hundred lines are kept, with the means. A value is whatever `float` takes, such as a Tensor
    of one element; another is said once and left out. Calls are counted as steps unless `step` is given.
    """
    from paddle_node.training import step_log

    step_log.report(metrics, step)
