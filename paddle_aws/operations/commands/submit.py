"""`paddle-aws submit`: one command from job.yaml to a running job."""

from typing import Annotated

import typer

from paddle_aws.operations.errors import cli_errors
from paddle_aws.operations.jobs.early_checks import (
    check_data,
    check_inputs,
    tell_pod_security,
    tell_recipe,
    tell_secrets,
)
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.jobs.progress.training_table import TrainingTable
from paddle_aws.operations.jobs.run import Run, send
from paddle_aws.operations.jobs.submission import Submission
from paddle_aws.operations.jobs.watch import log_stream, waiting
from paddle_aws.operations.jobs.watch.job_view import JobView
from paddle_aws.operations.options import (
    IMAGE_FILE,
    JOB_FILE,
    OUTPUTS,
    Context,
    Follow,
    ImageFile,
    JobFile,
    NoTry,
    Outputs,
    Overrides,
    Verbose,
    Wait,
    of_job,
)
from paddle_aws.operations.screen import console, say

LOOK = 30.0
"""Seconds for which `submit` without --wait reports what happens to the pods."""


def submit(
    job_file: JobFile = JOB_FILE,
    settings: Overrides = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent, and send nothing.")
    ] = False,
    wait: Wait = False,
    follow: Follow = False,
    verbose: Verbose = False,
    no_try: NoTry = False,
    context: Context = None,
    outputs: Outputs = OUTPUTS,
    image_file: ImageFile = IMAGE_FILE,
) -> None:
    """Submit a job: try its program on a few records, upload its data file, split the data, start
    the training.

    The data job runs first and is waited for; it ends at once where the shards are complete and the
    source is what it was. A job that runs is never overwritten. Ctrl-C leaves on the cluster what
    is there; submit again to continue.

    Example: paddle-aws submit job.yaml --follow

    Example: paddle-aws submit --set name=slower --set 'command+=--lr 0.01'
    """
    with cli_errors(
        "interrupted: what is on the cluster keeps running; run `paddle-aws submit` again to "
        "continue, or `paddle-aws cancel` to end it"
    ):
        submission = Submission.load(JobSource.of(job_file, settings), outputs, image_file)
        tell_recipe(submission.job, say)
        tell_pod_security(submission.job, say)
        tell_secrets(submission.job, say)
        if dry_run:
            _print(submission)
            return
        finish(
            send(submission, context, say, no_try=no_try),
            submission,
            wait=wait,
            follow=follow,
            verbose=verbose,
        )


def _print(submission: Submission) -> None:
    from k8s_charts import yaml_documents

    check_data(submission.job, submission.file, say)

    typer.echo(yaml_documents.dump(submission.documents), nl=False)
    if submission.local_file is not None:
        place = submission.job.uploaded
        where = f" to the volume: {place}" if place is not None else ""
        say(f"before that, {submission.local_file} would be uploaded{where}")
    for name, file in check_inputs(submission.job, submission.file).items():
        say(f"before that, {file} would be uploaded as the input {name}")
    if (archive := submission.job.program.archive) is not None:
        say(
            f"before that, {archive.root} would be uploaded: {len(archive.names)} files, "
            f"{archive.size:,} bytes"
        )
    if submission.data_job is not None:
        say(
            f"the training would be sent once {submission.data_job['metadata']['name']} has "
            "split the data"
        )
    if submission.deployed.missing:
        say(f"{submission.deployed.missing}: these are placeholders")


def finish(run: Run, submission: Submission, *, wait: bool, follow: bool, verbose: bool) -> None:
    """Does what submit and resume have to do once the training is on the cluster."""
    known = of_job(run.name, run.namespace)
    with cli_errors(
        f"interrupted: job {run.name} keeps running; `paddle-aws logs {known} --follow` shows it, "
        f"`paddle-aws cancel {known}` ends it"
    ):
        if follow:
            found = _follow(run, verbose=verbose, logs=not submission.job.reports_passes)
        elif wait:
            found = run.wait()
        else:
            found = run.follower.until(waiting.settled, LOOK)
            if found.phase not in ("failed", "done"):
                say(
                    f"next: `paddle-aws logs {known} --follow`, `paddle-aws wait {known}`, "
                    f"`paddle-aws results {known}`"
                )
                return
        say(waiting.verdict(found))
        if submission.job.reports_passes:
            say(
                f"`paddle-aws results {known} --model` fetches the model, and shows the lines "
                "that predict with it"
            )
        else:
            say(
                f"`paddle-aws results {known}` lists what the program wrote to output/, "
                "`--download output` fetches it"
            )


def _follow(run: Run, *, verbose: bool, logs: bool) -> JobView:
    """Shows the table of passes, or with `logs` what all ranks write, until the training ends."""
    from rich.text import Text

    if logs or verbose:
        printer = log_stream.Printer(verbose=verbose)
        found = log_stream.follow_job(run.follower, show=printer)
        printer.end()
        return found
    screen = console()
    with screen.status("pods are starting, parameter servers and trainers meet") as moving:
        table = TrainingTable(
            lambda text, style: screen.print(Text(text, style), soft_wrap=True), moving.update
        )

        def show(line: log_stream.Line) -> None:
            table.hear(line.rank, log_stream.clean(line.text))

        return log_stream.follow_job(run.follower, show=show)
