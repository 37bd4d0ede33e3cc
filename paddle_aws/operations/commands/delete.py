"""`paddle-aws delete`: remove a job's objects from the cluster."""

from typing import Annotated

import typer

from paddle_aws.operations.cluster.cluster_api import ClusterApi
from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.jobs import removal
from paddle_aws.operations.jobs.job_source import resolve_job
from paddle_aws.operations.options import DEFAULT, Context, JobArgument, Namespace
from paddle_aws.operations.screen import say


@cli_errors("interrupted: some of the job's objects may be gone; run it again to remove the rest")
def delete(
    job: JobArgument = DEFAULT,
    force: Annotated[
        bool, typer.Option("--force", help="Delete the job even while it runs.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Remove a job's objects from the cluster. Its folder on the volume stays, with data and
    passes.

    Waits until they are gone. Refused while the job runs, unless --force is given.

    Example: paddle-aws delete quick-start
    """
    which = resolve_job(job, namespace)
    cluster = ClusterApi(context, say)
    running = removal.list_running(cluster, which.name, which.namespace)
    if running and not force:
        raise BadInput(
            f"job {which.name} runs ({', '.join(running)}): cancel it first, or give --force"
        )
    removal.end_running(cluster, which.name, which.namespace)
    gone = removal.remove_all(cluster, which.name, which.namespace)
    if not gone:
        raise BadInput(
            f"there is no job {which.name} in namespace {which.namespace}: nothing to delete"
        )
    say(f"deleted {len(gone)} objects: {', '.join(gone)}; folder {which.name}/ stays on the volume")
