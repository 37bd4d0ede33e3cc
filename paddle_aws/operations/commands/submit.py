"""`paddle-aws submit`: one command from job.yaml to a running job."""

from typing import Annotated

import typer

from paddle_aws.operations.errors import cli_errors
from paddle_aws.operations.jobs.early_checks import (
    check_data,
    check_inputs,
    tell_pod_security,
    tell_program,
    tell_recipe,
    tell_secrets,
)
from paddle_aws.operations.jobs.follow_up import follow_to_end
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.jobs.run import submit_loaded
from paddle_aws.operations.jobs.submission import Submission
from paddle_aws.operations.jobs.trial import try_first
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
)
from paddle_aws.operations.screen import echo, say


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

    The data job runs first; it ends at once if the shards are complete and the source has not
    changed. A running job is never overwritten. After Ctrl-C, what was submitted stays on the
    cluster; submit again to continue.

    Example: paddle-aws submit job.yaml --follow

    Example: paddle-aws submit --set name=slower --set 'command+=--lr 0.01'
    """
    with cli_errors(
        "interrupted: what is on the cluster keeps running; run `paddle-aws submit` again to "
        "continue, or `paddle-aws cancel` to end it"
    ):
        submission = Submission.load(JobSource.from_job(job_file, settings), outputs, image_file)
        tell_recipe(submission.job, say)
        tell_program(submission.job, say)
        tell_pod_security(submission.job, say)
        tell_secrets(submission.job, say)
        if dry_run:
            _print_documents(submission, no_try=no_try)
            return
        follow_to_end(
            submit_loaded(submission, context, say, no_try=no_try),
            submission,
            wait=wait,
            follow=follow,
            verbose=verbose,
        )


def _print_documents(submission: Submission, *, no_try: bool) -> None:
    # Imported here: cdk8s takes a second to load.
    from k8s_charts import yaml_documents

    check_data(submission.job, submission.file, say)
    inputs = check_inputs(submission.job, submission.file)
    if not no_try:
        say(try_first(submission.job, submission.file))
    echo(yaml_documents.dump(submission.documents), nl=False)
    if submission.local_file is not None:
        place = submission.job.uploaded
        where = f" to the volume: {place}" if place is not None else ""
        say(f"before that, {submission.local_file} would be uploaded{where}")
    for name, file in inputs.items():
        say(f"before that, {file} would be uploaded as the input {name}")
    if (archive := submission.job.program.archive) is not None:
        say(f"before that, {archive.root} would be uploaded")
    if submission.data_job is not None:
        say(
            f"the training would be sent once {submission.data_job['metadata']['name']} has "
            "split the data"
        )
    if submission.deployed.missing:
        say(f"{submission.deployed.missing}: these are placeholders")
