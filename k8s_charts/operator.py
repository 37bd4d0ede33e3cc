"""The PaddleJob operator itself, so that `engine: paddlejob` works on a cluster that has nothing yet."""

from __future__ import annotations

from cdk8s import Chart
from constructs import Construct

from k8s_charts.spec import TrainingJob


class OperatorChart(Chart):
    """CustomResourceDefinition, namespace, rights and Deployment."""

    def __init__(self, scope: Construct, job: TrainingJob) -> None:
        super().__init__(scope, "paddle-operator")
