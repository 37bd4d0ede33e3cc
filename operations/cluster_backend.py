"""A job on a cluster, as `Backend` has it."""

from __future__ import annotations

from collections.abc import Iterator

from operations import job_view, log_stream
from operations.cluster import Cluster
from operations.evaluate import Evaluation, measure
from operations.job_argument import Named
from operations.job_view import JobView
from operations.log_stream import Line, Wanted
from operations.screen import say
from operations.volume_access import VolumeAccess


class ClusterBackend:
    """The kubeconfig's `context`; None: the current one."""

    def __init__(self, job: Named, context: str | None) -> None:
        self.job, self.cluster = job, Cluster.connect(context, say)

    def view(self) -> JobView:
        return job_view.view(self.cluster, self.job.name, self.job.namespace)

    def logs(self, wanted: Wanted, tail: int | None) -> Iterator[Line]:
        return log_stream.past(self.cluster, self.job.name, self.job.namespace, wanted, tail)

    def volume(self) -> VolumeAccess:
        return VolumeAccess(self.cluster, self.job.name, self.job.namespace, write=False, say=say, job_file=self.job.file)

    def evaluate(self) -> Evaluation:
        return measure(self.cluster, self.job, self.volume())
