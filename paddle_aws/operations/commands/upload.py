"""`paddle-aws upload`: training data to the bucket, or a program to the job's folder on the
volume.
"""

from pathlib import Path
from typing import Annotated

import typer
from paddle_node.contract import SOURCES

from k8s_charts.deployed import ClusterOutputs
from paddle_aws.operations.account import bucket_upload
from paddle_aws.operations.account.aws import client
from paddle_aws.operations.cluster.cluster_api import ClusterApi
from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.jobs.job_source import JobReference, JobSource, resolve_job
from paddle_aws.operations.jobs.run import upload_program
from paddle_aws.operations.jobs.submission import Submission
from paddle_aws.operations.jobs.volume import transfer as volume_transfer
from paddle_aws.operations.jobs.volume.access import mount_volume
from paddle_aws.operations.options import DEFAULT, OUTPUTS, Context, Namespace, Outputs
from paddle_aws.operations.screen import echo, say


@cli_errors("interrupted: what was sent stays; run the same command again to continue")
def upload(
    path: Annotated[
        Path | None, typer.Argument(help="A file or a folder; --program needs none.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help="s3://bucket/prefix. Default: the job's place in the deployed bucket."),
    ] = None,
    job: Annotated[
        str, typer.Option(help="The job that it is for: its name, or its job file.")
    ] = DEFAULT,
    volume: Annotated[
        bool,
        typer.Option(
            "--volume", help="Upload to the job's folder on the volume, not to the bucket."
        ),
    ] = False,
    program: Annotated[
        bool, typer.Option("--program", help="Upload the job file's program to the volume.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
    outputs: Outputs = OUTPUTS,
) -> None:
    """Upload training data to the bucket, or with --volume data or a program folder to the volume.

    It sends several files, or parts of a large one, in parallel, and skips files that are there
    already. It prints the address: put it into job.yaml as data.source. --volume needs no AWS: any
    cluster with the job's volume will do.

    Example: paddle-aws upload corpus/

    Example: paddle-aws upload corpus.tsv --volume --job job.yaml

    Example: paddle-aws upload my_program --volume --job quick-start

    Example: paddle-aws upload --program --job job.yaml
    """
    if program:
        _upload_program(Path(job), context, outputs)
        return
    if path is None:
        raise BadInput("PATH is missing: give a file or a folder, or --program")
    bucket_upload.files(path)
    if volume:
        if to is not None:
            raise BadInput(f"--to is {to}: with --volume it goes to the job's folder, leave it out")
        _upload_to_volume(path, resolve_job(job, namespace), context)
        return
    if to is None and not outputs.exists():
        raise BadInput(
            f"{outputs} does not exist, and names the bucket: deploy, name another place with "
            "--to, or upload to the job's volume with --volume"
        )
    # The manifests look here for a job's local data file.
    if not to:
        bucket = ClusterOutputs.load(outputs).bucket_name
        to = f"s3://{bucket}/sources/{resolve_job(job, namespace).name}"
    place = f"{to.rstrip('/')}/{path.resolve().name}"
    echo(bucket_upload.upload_files(client("s3"), path, place))


def _upload_program(job_file: Path, context: str | None, outputs: Path) -> None:
    """Uploads the program of manifests that kubectl will apply; `submit` does this on its own."""
    submission = Submission.load(
        JobSource.from_job(job_file), outputs, outputs.with_name("image.json")
    )
    if submission.job.program.archive is None:
        raise BadInput(
            f"program.from is {submission.job.program.origin}: --program uploads one `from: "
            "folder` or `from: git`"
        )
    upload_program(ClusterApi(context, say), submission)


def _upload_to_volume(path: Path, job: JobReference, context: str | None) -> None:
    files = bucket_upload.files(path)
    # The manifests look here for a job's local data file, too.
    folder = SOURCES if path.is_file() else path.resolve().name
    size = sum(file.stat().st_size for file, _ in files)
    with (
        mount_volume(ClusterApi(context, say), job, write=True) as volume,
        bucket_upload.bar(path.name, size) as progress,
    ):
        sent = volume_transfer.upload(volume, files, folder, progress)
    say(f"{path} is on the volume: {sent} of {len(files)} file{'s' * (len(files) != 1)} sent")
    echo(f"{volume.mount}/{folder}" + (f"/{path.name}" if path.is_file() else ""))
