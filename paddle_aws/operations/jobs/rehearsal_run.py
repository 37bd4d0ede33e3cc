"""Starts a rehearsal of a job, in a process of its own, and finds it again when it has ended."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from paddle_aws.operations.errors import BadInput, Exit, Failed, translate_errors
from paddle_aws.operations.jobs import rehearsal_backend
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.jobs.rehearsal_backend import RehearsalBackend
from paddle_aws.operations.jobs.run import log

REHEARSE = ("paddle_aws.rehearsal", "--local")
"""A rehearsal without a deploy."""


@translate_errors()
def rehearse(
    job: str | Path | Mapping[str, Any] = "job.yaml",
    *,
    volume: Literal["new", "keep"] = "new",
    data: str | Path | None = None,
    no_try: bool = False,
    outputs: str | Path = "outputs.json",
    image_file: str | Path = "image.json",
    say: Callable[[str], None] = log,
) -> RehearsalBackend:
    """Runs a job to its end on this machine, as `paddle-aws rehearse` does, in the current folder;
    returns it, with its results, its model and its logs.

    `job` is a job file, or its settings, whose local paths are relative to the current folder.
    `say` gets each line that the command would print. Raises BadInput for a job or machine that
    cannot be rehearsed; Failed if the job fails.
    """
    if volume not in ("new", "keep"):
        raise BadInput(f"volume is {volume!r}: new or keep is allowed")
    words = JobSource.from_job(job).command(
        *REHEARSE, volume=volume, data=data, no_try=no_try, outputs=outputs, image_file=image_file
    )
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                say(line.rstrip("\n"))
            reason = (process.stderr.read() if process.stderr else "").strip()
        except BaseException:
            process.terminate()  # It ends its pods, and this block waits for that.
            raise
    if process.returncode:
        raise (BadInput if process.returncode == Exit.BAD_INPUT else Failed)(reason)
    return rehearsal_backend.load()
