"""`paddle-aws list`: every job of a namespace, or of the cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from operations.cluster import Cluster, Object
from operations.errors import explained
from operations.job_objects import PART_OF, instance, jobs, of_newest
from operations.job_view import JobView, make, operator_jobs
from operations.pod_words import pod_state
from operations.screen import DEFAULT_NAMESPACE, Context, Json, Namespace, age, as_json, say, show, span


def list_jobs(
    namespace: Namespace = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Jobs of all namespaces.")] = False,
    context: Context = None,
    json: Json = False,
) -> None:
    """List the jobs on the cluster, the newest first.

    Example: paddle-aws list --all-namespaces
    """
    with explained():
        where = None if everywhere else (namespace or DEFAULT_NAMESPACE)
        views = _views(Cluster.connect(context, say), where)
        if json:
            as_json([view.as_json() for view in views])
            return
        if not views:
            say(f"no jobs {'on the cluster' if where is None else f'in namespace {where}'}: `paddle-aws submit` starts one")
            return
        columns = ("JOB", "STATE", "PODS", "RAN", "AGE", "NAMESPACE", "REASON")
        show(columns, [_row(view, everywhere) for view in views])


def _views(cluster: Cluster, namespace: str | None) -> list[JobView]:
    documents = [*cluster.items(jobs(namespace), PART_OF), *operator_jobs(cluster, namespace)]
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    found: dict[tuple[str, str], tuple[list[Object], list[Object]]] = {}
    for document in documents:
        found.setdefault((document["metadata"]["namespace"], instance(document)), ([], []))[0].append(document)
    for pod in cluster.items(path, PART_OF):
        key = (pod["metadata"]["namespace"], instance(pod))
        if key in found:
            found[key][1].append(pod)
    views = [
        make(name, one, jobs_, [pod_state(pod) for pod in of_newest(jobs_, pods)]) for (one, name), (jobs_, pods) in found.items()
    ]
    return sorted(views, key=_created, reverse=True)


def _created(view: JobView) -> float:
    job = view.training or view.data
    return job.created.timestamp() if job is not None and job.created is not None else 0.0


def _row(view: JobView, everywhere: bool) -> tuple[str, ...]:
    job = view.training or view.data
    pods = f"{job.succeeded}/{job.wanted}" if job is not None else ""
    ran = span(job.seconds(datetime.now(UTC))) if job is not None else ""
    since = age(job.created) if job is not None else ""
    return (view.name, view.phase, pods, ran, since, view.namespace if everywhere else "", view.reason)
