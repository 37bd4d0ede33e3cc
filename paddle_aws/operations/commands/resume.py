"""`paddle-aws resume`: starts a new run of a job from a complete pass."""

from typing import Annotated

import typer

from paddle_aws.operations.cluster.cluster_api import ClusterApi
from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.jobs.follow_up import follow_to_end
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.jobs.kept_volume import set_passes_aside, split_unless_kept
from paddle_aws.operations.jobs.run import Run, start_training, upload_program
from paddle_aws.operations.jobs.submission import Submission
from paddle_aws.operations.options import (
    IMAGE_FILE,
    JOB_FILE,
    OUTPUTS,
    Context,
    Follow,
    ImageFile,
    JobFile,
    Outputs,
    Overrides,
    Verbose,
    Wait,
)
from paddle_aws.operations.screen import say


def resume(
    job_file: JobFile = JOB_FILE,
    settings: Overrides = None,
    from_pass: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="PASS", min=0, help="Resume after this pass instead of the newest."
        ),
    ] = None,
    wait: Wait = False,
    follow: Follow = False,
    verbose: Verbose = False,
    context: Context = None,
    outputs: Outputs = OUTPUTS,
    image_file: ImageFile = IMAGE_FILE,
) -> None:
    """Run a job again, from its newest complete pass, or from an earlier one.

    It uses the shards on the volume, even if their source has changed since; if this job file's
    data job has not split the data yet, it does so first. With --from, later passes are set aside
    on the volume (renamed, not removed). To train a finished job further, raise `passes` in the job
    file. A running job is refused.

    Example: paddle-aws resume job.yaml --from 3
    """
    with cli_errors(
        "interrupted: what runs on the cluster keeps running; `paddle-aws cancel` ends it"
    ):
        submission = Submission.load(JobSource.from_job(job_file, settings), outputs, image_file)
        cluster = ClusterApi(context, say)
        submission.check(cluster, again=True)
        if from_pass is not None:
            if from_pass >= submission.job.passes:
                raise BadInput(
                    f"--from is {from_pass}: the job has passes 0 to {submission.job.passes - 1} "
                    f"(passes in {job_file})"
                )
            set_passes_aside(cluster, submission, from_pass)
        run = Run(cluster, submission.job.name, submission.job.namespace, submission.plain_job_file)
        upload_program(cluster, submission)
        split_unless_kept(submission, run.follower)
        submission.delete_ended(cluster, data=False)
        start_training(cluster, submission)
        follow_to_end(run, submission, wait=wait, follow=follow, verbose=verbose)
