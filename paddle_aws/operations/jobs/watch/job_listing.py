"""Every job of a namespace, or of the cluster, in one look."""

from datetime import UTC, datetime

from paddle_aws.operations.cluster.cluster_api import ClusterApi, Object
from paddle_aws.operations.jobs.objects.job_objects import (
    INSTANCE,
    PART_OF,
    drop_earlier_pods,
    pods,
    runs,
)
from paddle_aws.operations.jobs.objects.object_fields import label
from paddle_aws.operations.jobs.objects.pod_state import pod_states
from paddle_aws.operations.jobs.watch.job_view import JobView, build_view


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
    return sorted(
        views,
        key=lambda view: creation_time(view) or datetime.min.replace(tzinfo=UTC),
        reverse=True,
    )


def creation_time(view: JobView) -> datetime | None:
    """Returns when the job's newest Job was created."""
    job = view.training or view.data or view.environment
    return job.created if job is not None else None
