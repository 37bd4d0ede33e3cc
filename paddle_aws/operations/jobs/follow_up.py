"""Follows a submitted training to its end, and says what to do then."""

from paddle_aws.operations.errors import cli_errors
from paddle_aws.operations.jobs.progress.training_table import TrainingTable
from paddle_aws.operations.jobs.run import Run
from paddle_aws.operations.jobs.submission import Submission
from paddle_aws.operations.jobs.watch import log_stream, waiting
from paddle_aws.operations.jobs.watch.job_view import JobView
from paddle_aws.operations.options import job_arguments
from paddle_aws.operations.screen import clean, console, say

FIRST_LOOK = 30.0
"""Seconds for which `submit` without --wait reports what happens to the pods."""


def follow_to_end(
    run: Run, submission: Submission, *, wait: bool, follow: bool, verbose: bool
) -> None:
    """Does what `submit` and `resume` have in common once the training is on the cluster."""
    job, passes = job_arguments(run.name, run.namespace), submission.job.way.passes
    with cli_errors(
        f"interrupted: job {run.name} keeps running; `paddle-aws logs {job} --follow` shows it, "
        f"`paddle-aws cancel {job}` ends it"
    ):
        if follow:
            view = _follow(run, verbose=verbose, logs=not passes)
        elif wait:
            view = run.wait()
        else:
            view = run.follower.wait_until(waiting.is_settled, FIRST_LOOK)
            if view.phase not in ("failed", "done"):
                say(
                    f"next: `paddle-aws logs {job} --follow`, `paddle-aws wait {job}`, "
                    f"`paddle-aws results {job}`"
                )
                return
        say(waiting.require_success(view))
        if passes:
            say(
                f"`paddle-aws results {job} --model` fetches the model, and shows the lines "
                "that predict with it"
            )
        else:
            say(
                f"`paddle-aws results {job}` lists what the program wrote to output/, "
                "`--download output` fetches it"
            )


def _follow(run: Run, *, verbose: bool, logs: bool) -> JobView:
    """Shows the table of passes, or with `logs` what all ranks write, until the training ends."""
    from rich.text import Text

    if logs or verbose:
        printer = log_stream.Printer(verbose=verbose)
        view = log_stream.follow_job(run.follower, printer)
        printer.end()
        return view
    screen = console()
    with screen.status("pods are starting, parameter servers and trainers meet") as moving:
        table = TrainingTable(
            lambda text, style: screen.print(Text(text, style), soft_wrap=True), moving.update
        )

        def show(line: log_stream.PodLine) -> None:
            table.hear(line.rank, clean(line.text))

        return log_stream.follow_job(run.follower, show)
