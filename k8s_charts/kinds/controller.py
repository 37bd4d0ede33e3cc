"""What runs a job's training: a Job of Kubernetes' own, or another controller."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cdk8s import Chart
from constructs import Construct

from k8s_charts.spec import TrainingJob


@dataclass(frozen=True)
class Controller:
    """The charts of one controller, and the ports that its pods take from their nodes."""

    training: Callable[..., Chart]
    """The chart of the training: (scope, job, outputs, image)."""
    host_ports: Callable[[TrainingJob], Iterable[int]]
    host_ports_setting: tuple[str, str]
    """Why a job takes ports of its nodes, and how to do without, for messages."""
    operator: Callable[[Construct, TrainingJob], Chart | None] = lambda scope, job: None
    """Returns the chart to apply before, if the cluster lacks the controller."""
