"""`paddle-aws wait`: for a job's end, with an exit code."""

from __future__ import annotations

from typing import Annotated

import typer

from operations.errors import Failed, explained
from operations.job_argument import DEFAULT, JobArgument, named
from operations.screen import Context, Namespace, say


def wait(
    job: JobArgument = DEFAULT,
    timeout: Annotated[float | None, typer.Option(min=0, help="Minutes after which to give up, with exit code 1.")] = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Wait until a job ends, and tell what happens to its pods meanwhile.

    Exit code 0 when it succeeded, 1 when it failed or the timeout passed. Ctrl-C leaves the job running.

    Example: paddle-aws wait quick-start --timeout 120 && paddle-aws results quick-start
    """
    which_name = job
    with explained(f"interrupted: job {which_name} runs on; `paddle-aws cancel` ends it"):
        which = named(job, namespace)
        from operations import waiting
        from operations.cluster import Cluster
        from operations.job_view import view
        from operations.waiting import Narrator

        cluster = Cluster.connect(context, say)
        # A name that is mistyped is told at once, not waited for.
        view(cluster, which.name, which.namespace)
        seconds = timeout * 60 if timeout is not None else None
        ended = waiting.until(
            cluster,
            which.name,
            which.namespace,
            waiting.training_ended,
            narrator=Narrator(say),
            seconds=seconds,
        )
        if not waiting.training_ended(ended):
            raise Failed(f"job {which.name} is still {ended.phase} after {timeout:g} minutes: it runs on")
        say(waiting.verdict(ended))
