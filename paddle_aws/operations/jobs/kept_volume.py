"""What a resumed run keeps of the job's volume: its shards, and its passes up to the chosen one.

It keeps the shards, even if the source has changed, if this job's own data job wrote them and no
other data job has followed. The completed Job shows that, or the manifest on the volume, which
names its writer. Trainers check the same name.
"""

import json

from paddle_node.contract import DATA_MANIFEST, Variable

from paddle_aws.operations.cluster.cluster_api import ClusterApi, Object
from paddle_aws.operations.jobs.objects.job_objects import has_ended, variable
from paddle_aws.operations.jobs.objects.object_fields import condition
from paddle_aws.operations.jobs.run import split_data
from paddle_aws.operations.jobs.submission import Submission
from paddle_aws.operations.jobs.volume.access import mount_volume
from paddle_aws.operations.jobs.volume.saved_passes import choose_pass, saved_passes
from paddle_aws.operations.jobs.watch.waiting import Follower
from paddle_aws.operations.screen import say


def split_unless_kept(submission: Submission, follower: Follower) -> None:
    """Splits the data, unless the volume has this job's own shards."""
    if submission.data_job is None:
        return
    # Comes first: reading the volume needs it, and so do the trainers.
    submission.apply(follower.cluster, submission.documents_before_data())
    if _has_own_shards(follower.cluster, submission):
        say("the data on the volume is this job's own: it is not split again")
    else:
        split_data(submission, follower)


def set_passes_aside(cluster: ClusterApi, submission: Submission, from_pass: int) -> None:
    """Renames the passes after `from_pass`. Raises BadInput if that one is not complete."""
    job = submission.job
    with mount_volume(
        cluster, job.name, job.namespace, write=True, described_by=submission
    ) as volume:
        saved = saved_passes(volume, volume.files("output"))
        choose_pass(saved, str(from_pass))
        for pass_ in reversed(saved):
            # The newest first: an interruption never leaves a gap that could be taken for progress.
            if pass_.number > from_pass:
                name = volume.set_aside(f"output/{pass_.folder}")
                place = "/".join([*pass_.folder.split("/")[:-1], name])
                say(f"pass {pass_.number} is set aside as {job.name}/output/{place}")


def _has_own_shards(cluster: ClusterApi, submission: Submission) -> bool:
    """Returns whether the shards are this job's own; False if they have to be split, or are being
    split right now.
    """
    ours = _identity(submission.data_job) if submission.data_job is not None else ""
    jobs = submission.data_jobs(cluster)
    if any(_identity(job) != ours or not has_ended(job) for job in jobs):
        # Another data job may have left its shards there, or its program with a failed split.
        return False
    if any(condition(job, "Complete") for job in jobs):
        return True
    job = submission.job
    with mount_volume(
        cluster, job.name, job.namespace, write=False, described_by=submission
    ) as volume:
        try:
            manifest = json.loads(volume.read(DATA_MANIFEST))
        except (FileNotFoundError, ValueError):
            return False
    return isinstance(manifest, dict) and bool(ours) and manifest.get("job") == ours


def _identity(data_job: Object) -> str:
    """Returns the data job's name in the manifest that it writes; empty if it has no name."""
    return variable(data_job["spec"]["template"]["spec"], Variable.DATA_JOB)
