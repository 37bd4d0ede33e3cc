"""`paddle-aws cancel`: end a job's running pods."""

from paddle_aws.operations.errors import cli_errors
from paddle_aws.operations.jobs.backend import choose_backend
from paddle_aws.operations.options import DEFAULT, Context, JobArgument, Namespace, OfRehearsal
from paddle_aws.operations.screen import say


@cli_errors("interrupted: the pods may still be ending")
def cancel(
    job: JobArgument = DEFAULT,
    rehearsal: OfRehearsal = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """End a job's pods now. Its data, program and passes stay on the volume.

    The trainers get their grace period to save; `paddle-aws resume` continues from the newest
    complete pass.

    Example: paddle-aws cancel quick-start
    """
    run = choose_backend(job, namespace, context, rehearsal)
    ended = run.cancel()
    done = f"is ended ({', '.join(ended)})" if ended else "does not run: nothing to end"
    say(f"job {run.name} {done}")
