"""All pods of a job or none: what Volcano and Kueue have to be told."""

from __future__ import annotations

from typing import Any

from constructs import Construct

from k8s_charts import custom_object, names
from k8s_charts.placement import GPU
from k8s_charts.spec import TrainingJob
from k8s_charts.value_types import total

VOLCANO = "volcano"
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
"""By this annotation Volcano knows a pod's PodGroup."""


def scheduler(job: TrainingJob) -> str | None:
    """The pods' schedulerName; None for the cluster's own."""
    return VOLCANO if job.gang.kind == "volcano" else None


def pod_annotations(job: TrainingJob) -> dict[str, str]:
    """Annotations of each pod."""
    return {GROUP_ANNOTATION: job.name} if job.gang.kind == "volcano" else {}


def queue_labels(job: TrainingJob) -> dict[str, str]:
    """Labels of the Job object by which Kueue admits it."""
    if job.gang.kind != "kueue" or job.gang.queue is None:
        return {}
    priority = {"kueue.x-k8s.io/priority-class": job.gang.priority} if job.gang.priority else {}
    return {"kueue.x-k8s.io/queue-name": job.gang.queue, **priority}


def suspended(job: TrainingJob) -> bool | None:
    """Kueue starts a job by lifting `suspend` from it."""
    return True if job.gang.kind == "kueue" else None


def pod_group(scope: Construct, job: TrainingJob, *, members: int, with_gpus: int) -> None:
    """Volcano's PodGroup of `members` pods, where the job asks for one; it bears the job's name."""
    if job.gang.kind != "volcano":
        return
    amounts = {"cpu": total(job.resources.cpu, members), "memory": total(job.resources.memory, members)}
    if job.gpus.count:
        amounts[GPU] = str(job.gpus.count * with_gpus)
    spec: dict[str, Any] = {"minMember": members, "minResources": amounts}
    if job.gang.queue is not None:
        spec["queue"] = job.gang.queue
    if job.gang.priority is not None:
        spec["priorityClassName"] = job.gang.priority
    metadata = {"name": job.name, "namespace": job.namespace, "labels": names.labels(job)}
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    custom_object.add(scope, group)
