"""One job as it is now: its data job, its training, its pods, and one word for the whole."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from paddle_node.volume.attempts import doubts_in
from paddle_node.volume.progress import Progress

from paddle_aws.operations.cluster.cluster_api import ClusterApi, Object
from paddle_aws.operations.errors import BadInput, Unreachable
from paddle_aws.operations.jobs.objects.job_objects import (
    INSTANCE,
    PART_OF,
    JobState,
    drop_earlier_pods,
    newest,
    pods,
    read_state,
    runs,
    selector,
)
from paddle_aws.operations.jobs.objects.object_fields import label
from paddle_aws.operations.jobs.objects.pod_state import PodState, culprit, pod_states, states
from paddle_aws.operations.jobs.progress import training_progress
from paddle_aws.operations.jobs.progress.training_progress import Goodput


@dataclass(frozen=True)
class JobView:
    """A job on a cluster, as `find("words").status()` returns it.

    >>> view = JobView("words", "paddle", data=None, training=None, pods=())
    >>> view.phase, view.gone
    ('unknown', True)
    """

    name: str
    namespace: str
    data: JobState | None
    training: JobState | None
    pods: tuple[PodState, ...]
    progress: Progress | None = None
    """Progress of the training; None also if it was not requested."""
    goodput: Goodput | None = None
    environment: JobState | None = None

    @property
    def gone(self) -> bool:
        """Whether none of its Jobs exists."""
        return self.data is None and self.training is None and self.environment is None

    @property
    def unbuilt(self) -> bool:
        """Whether its environment could not be built before there was a training, whose pods may
        find one that another job has built.
        """
        environment = self.environment
        return self.training is None and environment is not None and environment.phase == "failed"

    @property
    def without_environment(self) -> str:
        """Why the pods of its training wait for an environment that its own Job does not build;
        empty if it does, or none wait.
        """
        environment, training = self.environment, self.training
        if environment is None or environment.phase != "failed":
            return ""
        if training is None or training.ended or self.progress is not None:
            return ""
        why = self._failure_of("environment") or environment.reason
        return f"its environment Job failed, and another job may build the same: {why}"

    @property
    def cancelled(self) -> bool:
        """Whether the newest training was cancelled: it is gone, and the remaining objects are
        marked.
        """
        job = self.training or self.data
        return job is not None and job.cancelled

    @property
    def lost(self) -> int:
        """How often the training has lost a pod so far, replaced or restarted in place."""
        replaced = self.training.failed if self.training is not None else 0
        return replaced + sum(pod.restarts for pod in self.pods if pod.part == "training")

    @property
    def phase(self) -> str:
        """One word: cancelled, the training's own phase or, while only the data job exists,
        splitting, split or failed.
        """
        if self.cancelled:
            return "cancelled"
        if self.unbuilt:
            return "failed"
        if self.training is not None:
            return self.training.phase
        if self.data is not None:
            return {"failed": "failed", "done": "split"}.get(self.data.phase, "splitting")
        return "unknown" if self.environment is None else "building"

    @property
    def reason(self) -> str:
        """Why it failed or waits: the Job's own reason and one pod's; of one that is done, what
        went wrong beside the training.
        """
        if self.cancelled:
            return "`paddle-aws resume` continues it"
        job, of_pod = self.deciding, ""
        of_job = job.reason if job is not None else ""
        if self.phase == "failed":
            if of_pod := self.failure:
                # Kubernetes names the pod that it saw fail first, which may be another one.
                of_job = of_job.partition(": ")[0]
        elif self.phase == "done":
            doubts = (doubts_in(pod.message) for pod in self.pods if pod.part == "training")
            of_pod = next((f"but {words}" for words in doubts if words), "")
        else:
            waits = (pod.reason for pod in self.pods if pod.phase == "waiting")
            of_pod = next(filter(None, waits), "")
        return "; ".join(filter(None, (self.without_environment, of_job, of_pod)))

    @property
    def deciding(self) -> JobState | None:
        """The Job whose end is the job's."""
        return self.environment if self.unbuilt else self.training or self.data

    @property
    def failure(self) -> str:
        """The pod that failed, its node and its last line; empty if no failed pod is left."""
        part = "data" if self.training is None else "training"
        return self._failure_of("environment" if self.unbuilt else part)

    def _failure_of(self, part: str) -> str:
        pod = culprit(pod for pod in self.pods if pod.part == part)
        return pod.failure if pod is not None else ""

    def as_json(self) -> dict[str, Any]:
        """Returns the document of `--json`, whose keys are part of what `paddle-aws` promises."""
        return {
            "job": self.name,
            "namespace": self.namespace,
            "state": self.phase,
            "reason": self.reason,
            "environment": _describe(self.environment),
            "data": _describe(self.data),
            "training": _describe(self.training),
            "progress": _describe(self.progress),
            "goodput": _describe(self.goodput),
            "lost_pods": self.lost,
            "pods": [_describe(pod) for pod in self.pods],
        }


_KEYS = {
    "name": "pod",
    "phase": "state",
    "code": "exit_code",
    "completions": "wanted",
    "reported": "told",
    "message": "",
    "restarts": "",
}
"""Keys of `--json` that are not the names of their fields; an empty one is left out."""


def _describe(
    part: JobState | PodState | Progress | Goodput | None,
) -> dict[str, Any] | None:
    if part is None:
        return None
    values = part.as_json() if isinstance(part, Progress) else asdict(part)
    document = {key: value for name, value in values.items() if (key := _KEYS.get(name, name))}
    if isinstance(part, JobState):
        document["seconds"] = part.seconds(datetime.now(UTC))
    return {
        key: value.isoformat() if isinstance(value, datetime) else value
        for key, value in document.items()
    }


def read_job(cluster: ClusterApi, name: str, namespace: str) -> JobView:
    """Returns the job as it is now, and how far its training is. Raises BadInput if the cluster has
    no job of that name.
    """
    seen = poll_job(cluster, name, namespace)
    if seen.gone:
        raise BadInput(
            f"there is no job {name} in namespace {namespace}: `paddle-aws list -A` shows those "
            "there are"
        )
    progress, goodput = training_progress.read_reports(cluster, namespace, seen.pods)
    return replace(seen, progress=progress, goodput=goodput)


def poll_job(cluster: ClusterApi, name: str, namespace: str) -> JobView:
    """Returns the job as it is now, `gone` if the cluster has no job of that name."""
    # In this order: a Job ends after its pods.
    runs_ = runs(cluster, namespace, selector(name))
    pods_ = drop_earlier_pods(runs_, cluster.items(pods(namespace), selector(name)))
    try:
        return build_view(name, namespace, runs_, *states(cluster, namespace, pods_, runs_))
    except Unreachable:
        # Events say why pods do not start: the next poll asks again.
        return build_view(name, namespace, runs_, pod_states(pods_, aws=cluster.aws))


def build_view(
    name: str,
    namespace: str,
    documents: list[Object],
    job_pods: list[PodState],
    refused: Mapping[str, str] = MappingProxyType({}),
) -> JobView:
    """Makes a view of a job's Job and PaddleJob objects, its pods in words, and why a Job's pods
    cannot be created.
    """

    def state_of(part: str) -> JobState | None:
        if (job := newest(documents, part)) is None:
            return None
        running = any(pod.component == part and pod.phase == "running" for pod in job_pods)
        return read_state(job, running, refused.get(job["metadata"]["name"], ""))

    return JobView(
        name,
        namespace,
        state_of("data"),
        state_of("") or state_of("trainer"),
        tuple(job_pods),
        environment=state_of("environment"),
    )


def list_jobs(cluster: ClusterApi, namespace: str | None) -> list[JobView]:
    """Returns the jobs, the newest first; None: of all namespaces."""
    objects: dict[tuple[str, str], tuple[list[Object], list[Object]]] = {}
    for document in runs(cluster, namespace):
        key = document["metadata"]["namespace"], label(document, INSTANCE)
        objects.setdefault(key, ([], []))[0].append(document)
    for pod in cluster.items(pods(namespace), PART_OF):
        # Pods whose Job is gone belong to no job, and are left out.
        objects.get((pod["metadata"]["namespace"], label(pod, INSTANCE)), ([], []))[1].append(pod)
    views = [
        build_view(name, where, jobs, pod_states(drop_earlier_pods(jobs, pods_), aws=cluster.aws))
        for (where, name), (jobs, pods_) in objects.items()
    ]
    unknown = datetime.min.replace(tzinfo=UTC)
    return sorted(views, key=lambda view: creation_time(view) or unknown, reverse=True)


def creation_time(view: JobView) -> datetime | None:
    """Returns when the job's newest Job was created."""
    job = view.training or view.data or view.environment
    return job.created if job is not None else None
