"""`paddle-aws try`: runs a job's program on the first records of its source, in one process of the
job's Paddle.

Deploys and sends nothing, and installs nothing without --install. Copies the program's folder, and
writes nothing to it.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import paddle_node
import typer
from paddle_node.contract import ExitCode, Variable

from k8s_charts.spec import TrainingJob
from k8s_charts.spec.program import ProgramArchive
from operations.errors import BadInput, Unreachable, cli_errors, translated
from operations.images import interpreter
from operations.jobs.early_checks import check_data
from operations.jobs.job_source import JobSource
from operations.screen import JOB_FILE, JobFile, Overrides, on_a_terminal, say

SECONDS = 300.0
NoTry = Annotated[
    bool, typer.Option("--no-try", help="Do not try the program on the first records before that.")
]


def trial(
    job_file: JobFile = JOB_FILE,
    settings: Overrides = None,
    data: Annotated[
        Path | None, typer.Option(help="A file to try instead of the job's source.")
    ] = None,
    install: Annotated[
        bool,
        typer.Option(
            "--install", help="Make the environment with the job's Paddle where it is missing."
        ),
    ] = False,
) -> None:
    """Try a job's program on a hundred records: no cluster, one process, seconds.

    It shows what each input gets and whether the loss falls; a fault is shown with the program's
    own line (exit code 2). Of a `command` only the script's syntax and imports are checked.

    Example: paddle-aws try job.yaml

    Example: paddle-aws try --set data.source=other.tsv
    """
    with cli_errors("interrupted: nothing was changed"):
        job = JobSource.of(job_file, settings).load(fetch=True)
        program, source = (
            _program(job, job_file),
            data.resolve() if data is not None else _source(job, job_file),
        )
        python = interpreter.folder(job, say=_say_how_far) if install else interpreter.found(job)
        if python is None:
            raise BadInput(_missing(job))
        _run(job, program, source, python)


@translated()
def try_(
    job: str | Path | Mapping[str, Any] = "job.yaml", *, data: str | Path | None = None
) -> str:
    """Tries a job's program as `paddle-aws try` does, and returns what the command prints.

    `job` is a job file, or its settings, whose local paths are relative to the current folder.
    Raises BadInput for a fault of the program, Unreachable if its source is.
    """
    source = JobSource.of(job)
    loaded = source.load(fetch=True)
    python = interpreter.found(loaded)
    if python is None:
        raise BadInput(_missing(loaded))
    program = _program(loaded, source.file)
    records = Path(data).resolve() if data is not None else _source(loaded, source.file)
    return _run(loaded, program, records, python, quiet=True)


def _say_how_far(text: str) -> None:
    if on_a_terminal(stderr=True):
        say(f"the job's environment: {text}")


def before(job: TrainingJob, job_file: Path, *, bucket: bool = True) -> str:
    """Returns the trial's last line, or why there was no trial: that is no fault of the job. Raises
    BadInput for a fault.

    `bucket`: whether an s3:// source belongs to the account that this shell knows.
    """
    try:
        program, source = _program(job, job_file), _source(job, job_file)
    except BadInput as reason:
        return f"not tried: {reason}"
    python = interpreter.found(job)
    if python is None or (not bucket and str(source).startswith("s3://")):
        return f"not tried: {'the source is in a bucket' if python else _missing(job)}"
    try:
        return f"tried: {_run(job, program, source, python, quiet=True).splitlines()[-1]}"
    except Unreachable as reason:
        return f"not tried: {reason}"


def _missing(job: TrainingJob) -> str:
    packages = " and the program's requirements" if job.program.requirements else ""
    return (
        f"no environment here has Paddle {job.paddle}{packages}: "
        "`make environments` makes the one of 2.6, then `paddle-aws try --install` any other"
    )


def _program(job: TrainingJob, job_file: Path) -> ProgramArchive:
    """Returns the program's files on this machine. Raises BadInput."""
    program = job.program
    if job.controller == "paddlejob":
        raise BadInput("controller is paddlejob: `try` runs programs of controller job")
    if job.command is None and job.chosen_runtime not in ("fleet-ps", "collective"):
        raise BadInput(
            f"runtime is {job.chosen_runtime}: `try` runs programs of fleet-ps and collective"
        )
    if read := program.archive or program.local(job_file.parent):
        return read
    folder = interpreter.PROJECT / "examples" / program.folder
    if program.origin != "image" or job.image is not None or not folder.is_dir():
        raise BadInput(f"program.from is {program.origin}: its files are not on this machine")
    return ProgramArchive.of_folder(folder, "program.folder")


def _source(job: TrainingJob, job_file: Path) -> str | Path:
    """Returns the source of the records; empty for a command, which is not run. Raises BadInput."""
    data = job.data
    if job.command is not None:
        return ""
    if data is None or data.source is None or job.source_on_volume:
        raise BadInput("the data lies on the volume: name a file of such records with --data")
    file = check_data(job, job_file, lambda doubt: None)
    return file.resolve() if file is not None else data.source


def _run(
    job: TrainingJob,
    program: ProgramArchive,
    source: str | Path,
    python: Path,
    *,
    quiet: bool = False,
) -> str:
    """Runs the trial and shows its output, or returns it if `quiet`. Raises BadInput, or
    Unreachable if the source is.
    """
    environment = {
        **os.environ,
        **job.environment,
        "TRAINING_ROLE": "TRIAL",
        "PATH": f"{python}:{os.environ.get('PATH', '')}",
        "PYTHONWARNINGS": "ignore",
        Variable.RUNTIME: job.chosen_runtime,
        Variable.SEED: str(job.seed),
        Variable.DATA_SOURCE: str(source),
        Variable.DATA_FORMAT: job.data.format if job.data is not None else "lines",
        Variable.COMMAND: "" if job.command is None else json.dumps(job.command),
    }
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name).resolve()
        program.write(scratch / "program.tar")
        shutil.unpack_archive(scratch / "program.tar", scratch / "program")
        home = scratch / "home"
        home.mkdir()
        # Only paddle_node: that Python must not see what is beside it here.
        (scratch / "path").mkdir()
        (scratch / "path" / "paddle_node").symlink_to(Path(paddle_node.__file__).parent)
        environment["PYTHONPATH"] = str(scratch / "path")
        trial: list[str | Path] = [
            "-m",
            "paddle_node.training.trial",
            scratch / "program" / "train.py",
        ]
        words = [python / "python", *trial, *job.arguments]
        out = subprocess.PIPE if quiet else None
        try:
            done = subprocess.run(
                words,
                env=environment,
                cwd=home,
                text=True,
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BadInput(
                f"the program did not end on 100 records within {SECONDS:.0f} s; --no-try skips "
                "this"
            ) from None
    said = done.stderr.strip()
    last = said.rpartition("\n")[2]
    if done.returncode == ExitCode.SOURCE_UNREACHABLE:
        raise Unreachable(f"data.source cannot be read from here: {last}; name a file with --data")
    if done.returncode < 0:
        where = re.search(rf'File "{scratch}/program/([^"]+)", line (\d+)', said)
        line = f" in {where[1]}:{where[2]}" if where else ""
        raise BadInput(
            f"Paddle crashed (signal {-done.returncode}){line}: is an id not below its "
            "embedding's number of rows?"
        )
    if done.returncode:
        raise BadInput(
            last
            if done.returncode == ExitCode.BAD_SETTING
            else f"the program ended with {done.returncode}: {said}"
        )
    if said and not quiet:
        say(said)
    return done.stdout or ""
