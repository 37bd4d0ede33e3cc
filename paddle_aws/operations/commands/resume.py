"""`paddle-aws resume`: starts a new run of a job from a complete pass.

It keeps the shards, even if the source has changed, if this job's own data job wrote them and no
other data job has followed. The completed Job shows that, or the manifest on the volume, which
names its writer. Trainers check the same name.
"""

import json
from typing import Annotated

import typer
from paddle_node.contract import DATA_MANIFEST, Variable

from paddle_aws.operations import options
from paddle_aws.operations.cluster.cluster_api import ClusterApi, Object
from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.jobs.follow_up import follow_to_end
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.jobs.objects.job_objects import has_ended, variable
from paddle_aws.operations.jobs.objects.object_fields import condition
from paddle_aws.operations.jobs.run import Run, split_data, start_training, upload_program
from paddle_aws.operations.jobs.submission import Submission
from paddle_aws.operations.jobs.volume.access import mount_volume
from paddle_aws.operations.jobs.volume.saved_passes import choose_pass, saved_passes
from paddle_aws.operations.jobs.watch.waiting import Follower
from paddle_aws.operations.screen import say


@cli_errors("interrupted: what runs on the cluster keeps running; `paddle-aws cancel` ends it")
def resume(
    job_file: options.JobFile = options.JOB_FILE,
    settings: options.Overrides = None,
    from_pass: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="PASS", min=0, help="Resume after this pass instead of the newest."
        ),
    ] = None,
    wait: options.Wait = False,
    follow: options.Follow = False,
    verbose: options.Verbose = False,
    context: options.Context = None,
    outputs: options.Outputs = options.OUTPUTS,
    image_file: options.ImageFile = options.IMAGE_FILE,
) -> None:
    """Run a job again, from its newest complete pass, or from an earlier one.

    It uses the shards on the volume, even if their source has changed since; if this job file's
    data job has not split the data yet, it does so first. With --from, later passes are set aside
    on the volume (renamed, not removed). To train a finished job further, raise `passes` in the job
    file. A running job is refused.

    Example: paddle-aws resume job.yaml --from 3
    """
    submission = Submission.load(JobSource.from_job(job_file, settings), outputs, image_file)
    cluster = ClusterApi(context, say)
    submission.check(cluster, again=True)
    if from_pass is not None:
        if from_pass >= submission.job.passes:
            raise BadInput(
                f"--from is {from_pass}: the job has passes 0 to {submission.job.passes - 1} "
                f"(passes in {job_file})"
            )
        _set_passes_aside(cluster, submission, from_pass)
    run = Run(cluster, submission.job.name, submission.job.namespace, submission.plain_job_file)
    upload_program(cluster, submission)
    _split_unless_kept(submission, run.follower)
    submission.delete_ended(cluster, data=False)
    start_training(cluster, submission)
    follow_to_end(run, submission, wait=wait, follow=follow, verbose=verbose)


def _split_unless_kept(submission: Submission, follower: Follower) -> None:
    """Splits the data, unless the volume has this job's own shards."""
    if submission.data_job is None:
        return
    # Comes first: reading the volume needs it, and so do the trainers.
    submission.apply(follower.cluster, submission.documents_before_data())
    if _has_own_shards(follower.cluster, submission):
        say("the data on the volume is this job's own: it is not split again")
    else:
        split_data(submission, follower)


def _set_passes_aside(cluster: ClusterApi, submission: Submission, from_pass: int) -> None:
    """Renames the passes after `from_pass`. Raises BadInput if that one is not complete."""
    with mount_volume(cluster, submission, write=True) as volume:
        saved = saved_passes(volume, volume.files("output"))
        choose_pass(saved, str(from_pass))
        for pass_ in reversed(saved):
            # The newest first: an interruption never leaves a gap that could be taken for progress.
            if pass_.number > from_pass:
                name = volume.set_aside(f"output/{pass_.folder}")
                place = "/".join([*pass_.folder.split("/")[:-1], name])
                say(f"pass {pass_.number} is set aside as {submission.name}/output/{place}")


def _has_own_shards(cluster: ClusterApi, submission: Submission) -> bool:
    """Returns whether the shards are this job's own; False if they have to be split, or are being
    split right now.
    """
    ours = _identity(submission.data_job) if submission.data_job else ""
    jobs = submission.data_jobs(cluster)
    if any(_identity(job) != ours or not has_ended(job) for job in jobs):
        # Another data job may have left its shards there, or its program with a failed split.
        return False
    if any(condition(job, "Complete") for job in jobs):
        return True
    with mount_volume(cluster, submission, write=False) as volume:
        try:
            manifest = json.loads(volume.read(DATA_MANIFEST))
        except (FileNotFoundError, ValueError):
            return False
    return isinstance(manifest, dict) and bool(ours) and manifest.get("job") == ours


def _identity(data_job: Object) -> str:
    """Returns the data job's name in the manifest that it writes; empty if it has no name."""
    return variable(data_job["spec"]["template"]["spec"], Variable.DATA_JOB)
