"""`paddle-aws resume`: starts a new run of a job from a complete pass.

It keeps the shards on the volume, new source or not, if this job's own data job split them and no
other data job has followed: its completed Job shows that, or else the manifest on the volume, which
names its writer. Trainers check the same name.
"""

import json
from typing import Annotated

import typer
from paddle_node.contract import DATA_MANIFEST, Variable

from paddle_aws.operations.cluster.cluster import Cluster, Object
from paddle_aws.operations.commands.results import chosen_pass, saved_passes
from paddle_aws.operations.commands.submit import finish
from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.jobs.run import Run, bring_program, split, train
from paddle_aws.operations.jobs.submission import Submission
from paddle_aws.operations.jobs.volume.access import mounted
from paddle_aws.operations.jobs.watch.job_objects import condition, ended, variable
from paddle_aws.operations.jobs.watch.waiting import Follower
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

    It keeps the data that is on the volume, even where its source has changed since; it is split
    first where this job file's data job has not done so. With --from, later passes are set aside on
    the volume (renamed, not removed). Raise `passes` in the job file to train on a job that came to
    its end. A job that runs is refused.

    Example: paddle-aws resume job.yaml --from 3
    """
    with cli_errors(
        "interrupted: what runs on the cluster keeps running; `paddle-aws cancel` ends it"
    ):
        submission = Submission.load(JobSource.of(job_file, settings), outputs, image_file)
        cluster = Cluster(context, say)
        submission.check(cluster, again=True)
        if from_pass is not None:
            if from_pass >= submission.job.passes:
                raise BadInput(
                    f"--from is {from_pass}: the job has passes 0 to {submission.job.passes - 1} "
                    f"(passes in {job_file})"
                )
            _set_aside(cluster, submission, from_pass)
        run = Run(cluster, submission.job.name, submission.job.namespace, submission.described)
        bring_program(cluster, submission)
        _bring_data(submission, run.follower)
        submission.forget(cluster, data=False)
        train(cluster, submission)
        finish(run, submission, wait=wait, follow=follow, verbose=verbose)


def _bring_data(submission: Submission, follower: Follower) -> None:
    if submission.data_job is None:
        return
    # Comes first: reading the volume needs it, and so do the trainers.
    submission.apply(follower.cluster, submission.preparation())
    if _has_own_shards(follower.cluster, submission):
        say("the data on the volume is this job's own: it is not split again")
    else:
        split(submission, follower)


def _set_aside(cluster: Cluster, submission: Submission, from_pass: int) -> None:
    job = submission.job
    with mounted(cluster, job.name, job.namespace, write=True, described=submission) as volume:
        rows = saved_passes(volume, volume.files("output"))
        chosen_pass(rows, str(from_pass))
        for row in reversed(rows):
            # The newest first: an interruption never leaves a gap that could be taken for progress.
            if row["pass"] > from_pass:
                name = volume.set_aside(f"output/{row['folder']}")
                place = "/".join([*row["folder"].split("/")[:-1], name])
                say(f"pass {row['pass']} is set aside as {job.name}/output/{place}")


def _has_own_shards(cluster: Cluster, submission: Submission) -> bool:
    """Returns whether the shards are this job's own; False if they have to be split, or are being
    split right now.
    """
    ours = _identity(submission.data_job) if submission.data_job is not None else ""
    known = submission.data_jobs(cluster)
    if any(_identity(job) != ours or not ended(job) for job in known):
        # Another data job may have left its shards there, or its program with a failed split.
        return False
    if any(condition(job, "Complete") for job in known):
        return True
    job = submission.job
    with mounted(cluster, job.name, job.namespace, write=False, described=submission) as volume:
        try:
            manifest = json.loads(volume.read(DATA_MANIFEST))
        except (FileNotFoundError, ValueError):
            return False
    return isinstance(manifest, dict) and bool(ours) and manifest.get("job") == ours


def _identity(data_job: Object) -> str:
    """Returns the data job's name in the manifest that it writes; empty if it has no name."""
    return variable(data_job["spec"]["template"]["spec"], Variable.DATA_JOB)
