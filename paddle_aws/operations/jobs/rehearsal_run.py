"""Starts a rehearsal of a job, in a process of its own, and finds it again when it has ended."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from paddle_aws.operations.errors import BadInput, Exit, Failed, translate_errors
from paddle_aws.operations.jobs import rehearsal_backend
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.jobs.rehearsal_backend import RehearsalBackend
from paddle_aws.operations.jobs.run import log


def command(
    job: JobSource,
    *,
    volume: Literal["new", "keep"],
    data: Path | None,
    no_try: bool,
    outputs: Path,
    image_file: Path,
    verbose: bool = False,
) -> list[str]:
    """Returns the command line of a rehearsal without a deploy."""
    # -P: nothing in the user's folder may take the place of this project's modules.
    words = [sys.executable, "-P", "-m", "paddle_aws.rehearsal", "--local", "--job", str(job.file)]
    words += job.words()
    words += ["--volume", volume, "--outputs", str(outputs), "--image-file", str(image_file)]
    words += ["--data", str(data)] if data is not None else []
    return words + ["--no-try"] * no_try + ["--verbose"] * verbose


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
    words = command(
        JobSource.from_job(job),
        volume=volume,
        data=None if data is None else Path(data),
        no_try=no_try,
        outputs=Path(outputs),
        image_file=Path(image_file),
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
