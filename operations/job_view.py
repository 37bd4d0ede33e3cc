"""One job as it is now: its data job, its training, its pods, and the one word for all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from operations import training_progress
from operations.cluster import Cluster, Object
from operations.errors import BadInput, Unreachable
from operations.job_objects import (
    PART_OF,
    JobState,
    component,
    jobs,
    newest,
    of_newest,
    paddle_job_state,
    paddle_jobs,
    pods,
    selector,
    state,
)
from operations.pod_words import PodState, culprit, pod_state, refusals, states
from operations.training_progress import TrainingProgress


@dataclass(frozen=True)
class JobView:
    """A job on a cluster."""

    name: str
    namespace: str
    data: JobState | None
    training: JobState | None
    pods: tuple[PodState, ...]
    progress: TrainingProgress | None = None
    """How far the training is; None also where nobody asked."""

    @property
    def lost(self) -> int:
        """How often the training has lost a pod so far: replaced, or restarted in place."""
        replaced = self.training.failed if self.training is not None else 0
        return replaced + sum(pod.restarts for pod in self.pods if pod.component != "data")

    @property
    def phase(self) -> str:
        """One word: splitting while only the data job is there, else the training's own phase."""
        if self.training is not None:
            return self.training.phase
        if self.data is not None:
            return {"failed": "failed", "done": "split"}.get(self.data.phase, "splitting")
        return "unknown"

    @property
    def reason(self) -> str:
        """Why it failed or waits: the Job's own word and the first pod's."""
        job = self.training or self.data
        words = [job.reason] if job is not None and job.reason else []
        if self.phase == "failed":
            words.append(self.failure)
        elif self.phase != "done":
            words += [pod.reason for pod in self.pods if pod.phase == "waiting" and pod.reason][:1]
        return "; ".join(filter(None, words))

    @property
    def failure(self) -> str:
        """Which pod failed, on which node, and what it said last; empty: no pod of what failed is there."""
        of_data = self.training is None
        pod = culprit(pod for pod in self.pods if (pod.component == "data") == of_data and pod.component != "reader")
        return pod.failure if pod is not None else ""

    def as_json(self) -> dict[str, Any]:
        """For `--json`: the keys are part of what `paddle-aws` promises."""
        return {
            "job": self.name,
            "namespace": self.namespace,
            "state": self.phase,
            "reason": self.reason,
            "data": _job_json(self.data),
            "training": _job_json(self.training),
            "progress": None if self.progress is None else asdict(self.progress),
            "lost_pods": self.lost,
            "pods": [
                {
                    "pod": pod.name,
                    "component": pod.component,
                    "rank": pod.rank,
                    "state": pod.phase,
                    "reason": pod.reason,
                    "node": pod.node,
                    "exit_code": pod.code,
                    "created": pod.created,
                }
                for pod in self.pods
            ],
        }


def _job_json(job: JobState | None) -> dict[str, Any] | None:
    if job is None:
        return None
    told = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(job).items()}
    return {"object": told.pop("object"), "state": told.pop("phase"), **told, "seconds": job.seconds(datetime.now(UTC))}


def view(cluster: Cluster, name: str, namespace: str) -> JobView:
    """The job as it is now, and how far its training is. Raises BadInput where the cluster has none of that name."""
    batch = cluster.items(jobs(namespace), selector(name))
    found = [*batch, *operator_jobs(cluster, namespace, name)]
    if not found:
        raise BadInput(f"there is no job {name} in namespace {namespace}: `paddle-aws list -A` shows those there are")
    seen = described(cluster, name, namespace, found, cluster.items(pods(namespace), selector(name)))
    return replace(seen, progress=training_progress.of_pods(cluster, namespace, seen.pods))


def described(cluster: Cluster, name: str, namespace: str, documents: list[Object], its_pods: Iterable[Object]) -> JobView:
    """From a job's objects; asks for what is no part of them: why pods do not start, or are not made.

    A server that does not answer that is asked again by whoever looks next.
    """
    batch = [document for document in documents if document.get("kind") != "PaddleJob"]
    its = of_newest(batch, its_pods)
    try:
        return make(name, namespace, documents, states(cluster, namespace, its), refusals(cluster, namespace, batch, its))
    except Unreachable:
        return make(name, namespace, documents, [pod_state(pod) for pod in its])


def make(
    name: str,
    namespace: str,
    documents: Iterable[Object],
    pod_states: Iterable[PodState],
    refused: Mapping[str, str] = MappingProxyType({}),
) -> JobView:
    """From a job's Job and PaddleJob objects, its pods in words, and why a Job's pods cannot be made."""
    documents, pods_of_it = list(documents), list(pod_states)
    batch = [document for document in documents if document.get("kind") != "PaddleJob"]
    operators = [document for document in documents if document.get("kind") == "PaddleJob"]
    data, training = newest(batch, "data"), newest(batch, "trainer")
    return JobView(
        name=name,
        namespace=namespace,
        data=_state(data, pods_of_it, refused),
        training=paddle_job_state(operators[-1]) if operators else _state(training, pods_of_it, refused),
        pods=tuple(pods_of_it),
    )


def _state(job: Object | None, pods_of_it: Iterable[PodState], refused: Mapping[str, str]) -> JobState | None:
    if job is None:
        return None
    running = any(pod.component == component(job) and pod.phase == "running" for pod in pods_of_it)
    return state(job, running, refused.get(job["metadata"]["name"], ""))


def operator_jobs(cluster: Cluster, namespace: str | None, name: str | None = None) -> list[Object]:
    """PaddleJobs; none where their operator is not installed."""
    found = cluster.items(paddle_jobs(namespace), selector(name) if name else PART_OF)
    return [{"kind": "PaddleJob", **document} for document in found]
