"""The chart of one step of a job."""

from collections.abc import Mapping

from cdk8s import Chart
from constructs import Construct

from k8s_charts.spec import TrainingJob
from k8s_charts.spec.job_settings import DATA_ENDING, ENVIRONMENT_ENDING


class JobChart(Chart):
    """A chart of one step. It depends on the earlier steps of its job in the same scope, so that
    an app numbers its files in the order in which they are applied.

    Args:
        job: the job.
        labels: labels of all objects in the chart.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        job: TrainingJob,
        *,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(scope, id, namespace=job.namespace, labels=labels)
        endings = ("-volume", ENVIRONMENT_ENDING, DATA_ENDING, "-training")
        steps = [f"{job.namespace}-namespace", "paddle-operator"]
        steps += [f"{job.name}{ending}" for ending in endings]
        for number, other in enumerate(steps):
            chart = scope.node.try_find_child(other) if id in steps and other != id else None
            if isinstance(chart, Chart):
                first, then = (chart, self) if number < steps.index(id) else (self, chart)
                then.add_dependency(first)
