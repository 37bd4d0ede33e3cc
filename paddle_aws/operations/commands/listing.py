"""`paddle-aws list`: every job of a namespace, or of the cluster."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from paddle_aws.operations.cluster.cluster import Cluster, Object
from paddle_aws.operations.errors import cli_errors
from paddle_aws.operations.jobs.watch.job_objects import (
    INSTANCE,
    PART_OF,
    label,
    of_newest,
    pods,
    runs,
)
from paddle_aws.operations.jobs.watch.job_view import JobView, make
from paddle_aws.operations.jobs.watch.pod_state import pod_states
from paddle_aws.operations.screen import (
    DEFAULT_NAMESPACE,
    Context,
    Json,
    Namespace,
    age,
    as_json,
    say,
    show,
    span,
)


def listing(
    namespace: Namespace = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Jobs of all namespaces.")
    ] = False,
    context: Context = None,
    json: Json = False,
) -> None:
    """List the jobs on the cluster, the newest first.

    Example: paddle-aws list --all-namespaces
    """
    with cli_errors():
        where = None if everywhere else (namespace or DEFAULT_NAMESPACE)
        views = _views(Cluster(context, say), where)
        if json:
            as_json([view.as_json() for view in views])
            return
        if not views:
            say(
                f"no jobs {'on the cluster' if where is None else f'in namespace {where}'}: "
                "`paddle-aws submit` starts one"
            )
            return
        columns = ("JOB", "STATE", "PODS", "RAN", "AGE", "NAMESPACE", "REASON")
        show(columns, [_row(view, everywhere) for view in views])


def _views(cluster: Cluster, namespace: str | None) -> list[JobView]:
    found: dict[tuple[str, str], tuple[list[Object], list[Object]]] = {}
    for document in runs(cluster, namespace):
        found.setdefault((document["metadata"]["namespace"], label(document, INSTANCE)), ([], []))[
            0
        ].append(document)
    for pod in cluster.items(pods(namespace), PART_OF):
        # Pods whose Job is gone belong to no job, and are left out.
        found.get((pod["metadata"]["namespace"], label(pod, INSTANCE)), ([], []))[1].append(pod)
    views = [
        make(name, one, its, pod_states(of_newest(its, its_pods), aws=cluster.aws))
        for (one, name), (its, its_pods) in found.items()
    ]
    return sorted(
        views, key=lambda view: _created(view) or datetime.min.replace(tzinfo=UTC), reverse=True
    )


def _created(view: JobView) -> datetime | None:
    job = view.training or view.data
    return job.created if job is not None else None


def _row(view: JobView, everywhere: bool) -> tuple[str, ...]:
    # What is left of a cancelled job is another Job's.
    job = None if view.cancelled else view.training or view.data
    done = f"{job.succeeded}/{job.wanted}" if job is not None else ""
    ran = span(job.seconds(datetime.now(UTC))) if job is not None else ""
    return (
        view.name,
        view.phase,
        done,
        ran,
        age(_created(view)),
        view.namespace if everywhere else "",
        view.reason,
    )
