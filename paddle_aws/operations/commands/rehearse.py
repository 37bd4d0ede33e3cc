"""`paddle-aws rehearse`: a whole job on this machine, from its manifests, without an account."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from paddle_aws.operations import options
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.jobs.rehearsal_run import REHEARSE


def rehearse(
    job_file: options.JobFile = options.JOB_FILE,
    settings: options.Overrides = None,
    volume: Annotated[
        Literal["new", "keep"],
        typer.Option(
            help="What the rehearsal's volume has at its beginning. keep: what the last rehearsal "
            "here left, for more passes, changed data or a resume."
        ),
    ] = "new",
    data: Annotated[
        Path | None,
        typer.Option(help="A file or folder to read in place of the job's s3:// or local source."),
    ] = None,
    no_try: options.NoTry = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Name the fields of the manifests that have no effect on one machine.",
        ),
    ] = False,
    outputs: options.Outputs = options.OUTPUTS,
    image_file: options.ImageFile = options.IMAGE_FILE,
) -> None:
    """Run a job on this machine: its pods as processes, from the manifests that a cluster gets.

    It deploys nothing; `make rehearse`, in a clone of this project, also deploys to an AWS
    emulator. While it runs, status, logs --follow, board and cancel work from another terminal in
    this folder; afterwards results and evaluate do, too. Ctrl-C ends it and keeps its volume, logs
    and record.

    Example: paddle-aws rehearse job.yaml

    Example: paddle-aws rehearse job.yaml --volume keep

    Example: paddle-aws rehearse --set trainers=4 --set 'command+=--lr 0.01'
    """
    words = JobSource.from_job(job_file, settings).command(
        *REHEARSE,
        volume=volume,
        data=data,
        no_try=no_try,
        outputs=outputs,
        image_file=image_file,
        verbose=verbose,
    )
    sys.stdout.flush()
    # In this process's place: the terminal's signals reach the rehearsal alone, and once.
    os.execv(words[0], words)
