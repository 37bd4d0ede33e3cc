"""`paddle-aws storm`: faults at a job's own events on this machine, and a verdict."""

import os
import sys
from typing import Annotated

import typer

from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.options import JOB_FILE, JobFile, Overrides


def storm(
    job_file: JobFile = JOB_FILE,
    settings: Overrides = None,
    seed: Annotated[int, typer.Option(help="The same seed draws the same faults.")] = 1,
    faults: Annotated[
        str,
        typer.Option(
            help="Kinds to draw from (kill-rank,freeze-pod,...), or whole faults, which make one "
            "run's schedule (kill-rank/1@step-7,cut/0@load). Default: every kind."
        ),
    ] = "",
    runs: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Runs with faults, of 5 faults each. [5]")
    ] = None,
    calm: Annotated[
        int,
        typer.Option(
            min=2,
            max=20,
            help="Runs without faults, to compare with; twice as many if they differ.",
        ),
    ] = 2,
    shrink: Annotated[
        bool, typer.Option(help="Look for the fewest faults that still make a run fail.")
    ] = True,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Run the undisturbed runs again, although .storm/ has them."),
    ] = False,
) -> None:
    """Run a job on this machine through faults that its program will meet on a cluster.

    Runs without faults come first: they show what the job should do. Then each run meets
    faults at events of the program (a step, a checkpoint that is being written or loaded, its end):
    killed ranks, agents and pods, a spot notice, a freeze, a volume that is full, slow, failing or
    read-only, a damaged checkpoint, a broken connection. The verdict says what was seen; .storm/
    keeps a receipt (receipt.json, receipt.html) and each run's lines. It reuses undisturbed runs of
    the same job, program and data. Exit code 1: a run failed.

    Example: paddle-aws storm job.yaml --seed 7

    Example: paddle-aws storm job.yaml --faults kill-rank,kill-pod --runs 2

    Example: paddle-aws storm job.yaml --faults kill-rank/1@step-7
    """
    source = JobSource.from_job(job_file, settings)
    words = source.command(
        "paddle_aws.storm",
        seed=seed,
        faults=faults,
        calm=calm,
        runs=runs,
        no_shrink=not shrink,
        fresh=fresh,
    )
    sys.stdout.flush()
    os.execv(sys.executable, words)
