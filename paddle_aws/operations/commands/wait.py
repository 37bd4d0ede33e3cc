"""`paddle-aws wait`: wait for a job's end, with an exit code."""

from typing import Annotated

import typer

from paddle_aws.operations.errors import cli_errors
from paddle_aws.operations.jobs.backend import choose_backend
from paddle_aws.operations.jobs.watch import waiting
from paddle_aws.operations.options import DEFAULT, Context, JobArgument, Namespace, OfRehearsal
from paddle_aws.operations.screen import say


def wait(
    job: JobArgument = DEFAULT,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Minutes after which to give up, with exit code 1.")
    ] = None,
    rehearsal: OfRehearsal = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Wait until a job ends, and report what happens to its pods.

    Exit code 0 if it succeeded, 1 if it failed or the timeout passed. Ctrl-C leaves the job
    running.

    Example: paddle-aws wait quick-start --timeout 120 && paddle-aws results quick-start
    """
    with cli_errors(f"interrupted: job {job} keeps running; `paddle-aws cancel` ends it"):
        run = choose_backend(job, namespace, context, rehearsal)
        say(waiting.require_success(run.wait(None if timeout is None else timeout * 60)))
