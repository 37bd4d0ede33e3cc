"""`paddle-aws list`: every job of a namespace, or of the cluster."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from paddle_aws.operations.cluster.cluster_api import ClusterApi
from paddle_aws.operations.jobs import rehearsal_backend
from paddle_aws.operations.jobs.backend import is_rehearsal
from paddle_aws.operations.jobs.watch.job_view import JobView, creation_time, list_jobs
from paddle_aws.operations.options import DEFAULT_NAMESPACE, Context, Json, Namespace, OfRehearsal
from paddle_aws.operations.screen import age, print_json, print_table, say, span


def listing(
    namespace: Namespace = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List the jobs of all namespaces.")
    ] = False,
    rehearsal: OfRehearsal = None,
    context: Context = None,
    json: Json = False,
) -> None:
    """List the jobs on the cluster, or those that were rehearsed in this folder, the newest first.

    Example: paddle-aws list --all-namespaces
    """
    where = None if everywhere else (namespace or DEFAULT_NAMESPACE)
    if rehearsed := not everywhere and is_rehearsal(namespace, context, rehearsal):
        views = [rehearsal_backend.load(name=name).status() for name in rehearsal_backend.names()]
    else:
        views = list_jobs(ClusterApi(context, say), where)
    if json:
        print_json([view.as_json() for view in views])
        return
    if rehearsed and not rehearsal:
        say("the rehearsals in this folder; --no-rehearsal asks the cluster")
    if not views:
        say(
            f"no jobs {'on the cluster' if where is None else f'in namespace {where}'}: "
            "`paddle-aws submit` starts one"
        )
        return
    columns = ("JOB", "STATE", "PODS", "RAN", "AGE", "NAMESPACE", "REASON")
    print_table(columns, [_row(view, everywhere) for view in views])


def _row(view: JobView, everywhere: bool) -> tuple[str, ...]:
    # What is left of a cancelled job belongs to another Job.
    job = None if view.cancelled else view.training or view.data
    done = f"{job.succeeded}/{job.completions}" if job is not None else ""
    ran = span(job.seconds(datetime.now(UTC))) if job is not None else ""
    namespace = view.namespace if everywhere else ""
    return view.name, view.phase, done, ran, age(creation_time(view)), namespace, view.reason
