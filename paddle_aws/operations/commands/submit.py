"""`paddle-aws submit`: one command from job.yaml to a running job."""

from typing import Annotated

import typer

from paddle_aws.operations import options
from paddle_aws.operations.errors import cli_errors
from paddle_aws.operations.jobs import early_checks
from paddle_aws.operations.jobs.follow_up import follow_to_end
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.jobs.run import submit_loaded
from paddle_aws.operations.jobs.submission import Submission
from paddle_aws.operations.jobs.trial import try_first
from paddle_aws.operations.screen import echo, say


@cli_errors(
    "interrupted: what is on the cluster keeps running; run `paddle-aws submit` again to "
    "continue, or `paddle-aws cancel` to end it"
)
def submit(
    job_file: options.JobFile = options.JOB_FILE,
    settings: options.Overrides = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent, and send nothing.")
    ] = False,
    wait: options.Wait = False,
    follow: options.Follow = False,
    verbose: options.Verbose = False,
    no_try: options.NoTry = False,
    context: options.Context = None,
    outputs: options.Outputs = options.OUTPUTS,
    image_file: options.ImageFile = options.IMAGE_FILE,
) -> None:
    """Submit a job: try its program on a few records, upload its data file, split the data, start
    the training.

    The data job runs first; it ends at once if the shards are complete and the source has not
    changed. A running job is never overwritten. After Ctrl-C, what was submitted stays on the
    cluster; submit again to continue.

    Example: paddle-aws submit job.yaml --follow

    Example: paddle-aws submit --set name=slower --set 'command+=--lr 0.01'
    """
    submission = Submission.load(JobSource.from_job(job_file, settings), outputs, image_file)
    early_checks.tell_recipe(submission.job, say)
    early_checks.tell_program(submission.job, say)
    early_checks.tell_risks(submission.job, say)
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

    early_checks.check_data(submission.job, submission.file, say)
    inputs = early_checks.check_inputs(submission.job, submission.file)
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
