"""`paddle-aws logs`: what all ranks of a job write."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from operations.errors import explained
from operations.job_argument import DEFAULT, JobArgument, named
from operations.screen import Context, Namespace, say


def logs(
    job: JobArgument = DEFAULT,
    rank: Annotated[str, typer.Option("--rank", "-r", help="all, a trainer id, or several: 0-3, 0,2.")] = "all",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    of: Annotated[Literal["training", "data"], typer.Option(help="The training's pods, or the data job's.")] = "training",
    tail: Annotated[int | None, typer.Option(min=0, help="Only this many last lines of each pod.")] = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Show a job's logs, all ranks interleaved in order of time.

    With --follow they come as they are written, across lost connections and replaced pods, until the job ends.

    Example: paddle-aws logs quick-start --rank 0 --follow
    """
    with explained("interrupted: the job runs on"):
        which = named(job, namespace)
        from operations import log_stream
        from operations.cluster import Cluster
        from operations.job_view import operator_jobs, view

        chosen = log_stream.Wanted(log_stream.ranks(rank), of)
        cluster = Cluster.connect(context, say)
        # A name that is mistyped is told at once.
        view(cluster, which.name, which.namespace)
        if follow:
            operator = bool(operator_jobs(cluster, which.namespace, which.name)) and of == "training"
            log_stream.follow_job(cluster, which.name, which.namespace, match=chosen, operator=operator, tail=tail)
            return
        show = log_stream.printer()
        for line in log_stream.past(cluster, which.name, which.namespace, chosen, tail):
            show(line)
