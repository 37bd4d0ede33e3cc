"""`paddle-aws submit`: one command from job.yaml to a running job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from operations.errors import Failed, explained
from operations.screen import Context, of_job, say

if TYPE_CHECKING:
    from operations.cluster import Cluster
    from operations.submission import Submission
    from operations.waiting import Narrator

LOOK = 30.0
"""Seconds for which `submit` without --wait tells what becomes of the pods."""


def submit(
    job_file: Annotated[Path, typer.Argument(metavar="JOB", help="The job file.")] = Path("job.yaml"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be sent, and send nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; exit code 1 if the job fails.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show the logs of all ranks until the end.")] = False,
    context: Context = None,
    outputs: Annotated[Path, typer.Option(help="What `cdk deploy --outputs-file` wrote.")] = Path("outputs.json"),
    image_file: Annotated[Path, typer.Option(help="What `make push` wrote.")] = Path("image.json"),
) -> None:
    """Submit a job: upload its data file, split the data, start the training.

    The data job runs first and is waited for; it ends at once where the shards are complete and the source is what it was.
    A job that runs is never overwritten. Ctrl-C leaves on the cluster what is there; submit again to go on.

    Example: paddle-aws submit job.yaml --follow
    """
    left = "interrupted: what runs on the cluster runs on; `paddle-aws submit` goes on, `paddle-aws cancel` ends it"
    with explained(left):
        from operations.submission import Submission

        submission = Submission.load(job_file, outputs, image_file)
        if dry_run:
            _print(submission)
            return
        from operations.cluster import Cluster
        from operations.waiting import Narrator

        cluster = Cluster.connect(context, say)
        submission.check(cluster)
        narrator = Narrator(say)
        bring_program(cluster, submission)
        split(cluster, submission, narrator)
        train(cluster, submission)
        finish(cluster, submission, narrator, wait=wait, follow=follow)


def _print(submission: Submission) -> None:
    from k8s_charts import manifest_text

    typer.echo(manifest_text.dump(submission.documents), nl=False)
    if submission.local_file is not None:
        say(f"before that, {submission.local_file} would be uploaded")
    if submission.job.program.archive is not None:
        archive = submission.job.program.archive
        say(f"before that, {archive.root} would be uploaded: {len(archive.names)} files, {archive.size:,} bytes")
    if submission.data_job is not None:
        say(f"the training would be sent once {submission.data_job['metadata']['name']} has split the data")
    if submission.outputs.placeholders:
        say("outputs.json does not exist: the file system, the bucket and, without an image of yours, the image are placeholders")


def bring_program(cluster: Cluster, submission: Submission) -> None:
    """Uploads the program's archive to the job's folder on the volume, where it does not lie there already."""
    from tempfile import TemporaryDirectory

    from operations.bucket_upload import bar
    from operations.volume_access import VOLUME, VolumeAccess
    from operations.volume_transfer import upload

    job, archive = submission.job, submission.job.program.archive
    if archive is None:
        return
    with TemporaryDirectory() as folder:
        file = Path(folder, f"{archive.digest}.tar")
        archive.write(file)
        submission.apply(cluster, [document for document in submission.documents if document["kind"] in VOLUME], say)
        with (
            VolumeAccess(cluster, job.name, job.namespace, write=True, say=say, submission=submission) as volume,
            bar(archive.root.name, file.stat().st_size) as progress,
        ):
            sent = upload(volume, [(file, file.name)], "programs", progress)
    say(f"{archive.root} {'is uploaded to' if sent else 'lies already on'} the volume: {job.name}/programs/{file.name}")


def bring_data(submission: Submission) -> None:
    """Uploads the local data file where the bucket does not hold this content."""
    if submission.local_file is None:
        return
    from k8s_charts import data_job
    from operations.aws import client
    from operations.bucket_upload import upload_files

    upload_files(client("s3"), submission.local_file, data_job.source(submission.job, submission.outputs))


def split(cluster: Cluster, submission: Submission, narrator: Narrator) -> None:
    """Brings the data to the volume, and waits for it. Raises Failed when the split fails."""
    from operations import waiting
    from operations.pod_words import culprit

    if submission.data_job is None:
        return
    bring_data(submission)
    submission.apply(cluster, submission.preparation(), say)
    # Only the data job knows whether its source has changed: one that has ended runs again, and ends at once where it has not.
    submission.forget_data(cluster)
    cluster.apply(submission.data_job)
    job = submission.job
    view = waiting.until(cluster, job.name, job.namespace, waiting.data_ended, narrator=narrator)
    if view.data is not None and view.data.phase == "failed":
        pod = culprit(pod for pod in view.pods if pod.component == "data")
        raise Failed(
            f"job {job.name}: the data split failed: {pod.failure if pod else view.data.reason}; "
            f"`paddle-aws logs {of_job(job.name, job.namespace)} --of data` shows its log"
        )
    say(f"the data is split: {submission.data_job['metadata']['name']} is done")


def train(cluster: Cluster, submission: Submission) -> None:
    """Starts the training."""
    from operations import rehearsal_backend

    rehearsal_backend.submitted()
    submission.apply(cluster, submission.rest(), say)
    say(f"job {submission.job.name} is submitted: {submission.training['kind']} {submission.training['metadata']['name']}")


def finish(cluster: Cluster, submission: Submission, narrator: Narrator, *, wait: bool, follow: bool) -> None:
    """What submit and resume do once the training is on the cluster."""
    from operations import waiting

    job = submission.job
    known = of_job(job.name, job.namespace)
    with explained(
        f"interrupted: job {job.name} runs on; `paddle-aws logs {known} --follow` shows it, `paddle-aws cancel {known}` ends it"
    ):
        if follow:
            from operations import log_stream

            log_stream.follow_job(cluster, job.name, job.namespace, narrator)
        enough, seconds = (waiting.training_ended, None) if follow or wait else (waiting.settled, LOOK)
        view = waiting.until(cluster, job.name, job.namespace, enough, narrator=narrator, seconds=seconds)
        if view.phase in ("failed", "done"):
            say(waiting.verdict(view))
            if job.command is None and job.engine == "job":
                say(f"`paddle-aws results {known} --model` fetches the model, and shows the lines that predict with it")
            else:
                say(f"`paddle-aws results {known} --download output/PATH` fetches what the program wrote there")
            return
        say(f"next: `paddle-aws logs {known} --follow`, `paddle-aws wait {known}`, `paddle-aws results {known}`")
