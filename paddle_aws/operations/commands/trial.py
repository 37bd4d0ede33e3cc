"""`paddle-aws try`: runs a job's program on the first records of its source, in one process of the
job's Paddle. Deploys and sends nothing, and installs nothing without --install.
"""

from pathlib import Path
from typing import Annotated

import typer
from paddle_node.requirements.install import reports

from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.images import interpreter
from paddle_aws.operations.jobs import early_checks
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.jobs.trial import (
    check_packages,
    missing_environment,
    program_of,
    run_command,
    run_program,
    source_of,
)
from paddle_aws.operations.options import JOB_FILE, JobFile, Overrides
from paddle_aws.operations.screen import is_terminal, say


@cli_errors("interrupted: nothing was changed")
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
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="Write packages that the program needs and the image lacks to job.yaml."
        ),
    ] = False,
    run: Annotated[
        bool,
        typer.Option("--run", help="Run the job's command for a few steps in one pod's processes."),
    ] = False,
    steps: Annotated[
        int, typer.Option(help="With --run: steps to see, by the patterns of `metrics`.")
    ] = 5,
    time_limit: Annotated[
        float, typer.Option(help="With --run: seconds after which the command is stopped.")
    ] = 60.0,
) -> None:
    """Try a job's program on a hundred records: no cluster, one process, seconds.

    It shows what each input gets and whether the loss falls; an error names the line of the
    program (exit code 2). For a `command`, it follows the script's imports through the program,
    answers with the requirements that are missing, and names what it cannot check. --run runs
    the command for a few steps, shows its output and says which patterns of `metrics` match its
    lines; if none does, the exit code is 1. The data is --data, or the job's local source.

    Example: paddle-aws try --run --time-limit 60

    Example: paddle-aws try job.yaml

    Example: paddle-aws try --set data.source=other.tsv
    """
    if time_limit <= 0 or steps < 1:
        raise BadInput("--time-limit and --steps must be more than 0")
    if data is not None and not data.exists():
        raise BadInput(f"--data is {data}: there is no such file or folder")
    job = JobSource.from_job(job_file, settings).load(fetch=True)
    early_checks.tell_recipe(job, say)
    early_checks.tell_program(job, say)
    inputs = early_checks.check_inputs(job, job_file)
    program, source = (
        program_of(job, job_file),
        data.resolve() if data is not None else source_of(job, job_file),
    )
    with reports(_say_how_far, lambda: "looking for the packages that it imports"):
        check_packages(job, program, job_file, write=write)
    if write:
        job = JobSource.from_job(job_file, settings).load(fetch=True)
    python = interpreter.folder(job, say=_say_how_far) if install else interpreter.find(job)
    if python is None:
        raise BadInput(missing_environment(job))
    if run and not job.way.launches:
        raise BadInput(
            f"--run is given and runtime is {job.way.runtime}: it runs a command of runtime "
            "launch; `paddle-aws try` tries a train.py, and a rehearsal runs any"
        )
    if run:
        place = data or early_checks.check_data(job, job_file, lambda doubt: None)
        if away := next((name for name in job.inputs if name not in inputs), None):
            raise BadInput(
                f"inputs.{away} is {job.inputs[away]}: --run reads local files alone; `--set "
                f"inputs.{away}=PATH` names one"
            )
        run_command(job, program, inputs, place and place.resolve(), python, steps, time_limit)
    else:
        with reports(_say_how_far, lambda: "trying the program"):
            run_program(job, program, source, python)


def _say_how_far(text: str) -> None:
    if is_terminal(stderr=True):
        say(text)
