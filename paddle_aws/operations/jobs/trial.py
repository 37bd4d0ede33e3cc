"""Runs a job's program on the first records of its source, in one process of the job's Paddle.

Deploys and sends nothing, and installs nothing. Copies the program's folder, and writes nothing to
it.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from paddle_node import command_line, contract
from paddle_node.contract import ExitCode, Variable

from k8s_charts.spec import TrainingJob
from k8s_charts.spec.program_archive import ProgramArchive
from paddle_aws.operations.errors import BadInput, Failed, Unreachable, translate_errors
from paddle_aws.operations.images import interpreter, packages
from paddle_aws.operations.jobs.early_checks import check_data
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.operations.screen import say

TRIAL_SECONDS = 300.0


@translate_errors()
def try_(
    job: str | Path | Mapping[str, Any] = "job.yaml", *, data: str | Path | None = None
) -> str:
    """Tries a job's program as `paddle-aws try` does, and returns what the command prints.

    `job` is a job file, or its settings, whose local paths are relative to the current folder.
    Raises BadInput for a fault of the program, Unreachable if its source is.
    """
    source = JobSource.from_job(job)
    loaded = source.load(fetch=True)
    python, program = interpreter.find(loaded), program_of(loaded, source.file)
    check_packages(loaded, program, source.file)
    if python is None:
        raise BadInput(missing_environment(loaded))
    records = Path(data).resolve() if data is not None else source_of(loaded, source.file)
    return run_program(loaded, program, records, python, quiet=True)


def try_first(job: TrainingJob, job_file: Path, *, bucket: bool = True) -> str:
    """Returns the trial's last line, or why there was no trial: that is no fault of the job. Raises
    BadInput for a fault.

    `bucket`: whether an s3:// source belongs to the account that this shell knows.
    """
    try:
        program, source = program_of(job, job_file), source_of(job, job_file)
    except BadInput as reason:
        return f"not tried: {reason}"
    python = interpreter.find(job)
    if python is None or (not bucket and str(source).startswith("s3://")):
        return f"not tried: {'the source is in a bucket' if python else missing_environment(job)}"
    try:
        return f"tried: {run_program(job, program, source, python, quiet=True).splitlines()[-1]}"
    except Unreachable as reason:
        return f"not tried: {reason}"


def missing_environment(job: TrainingJob) -> str:
    """Says which environment the job needs, and how it is made."""
    packages = " and the program's requirements" if job.program.requirements else ""
    return (
        f"no environment here has Paddle {job.chosen_paddle}{packages}: "
        "`paddle-aws try --install` makes it, `make environments` those of 2.6 and 3.3"
    )


def check_packages(
    job: TrainingJob, program: ProgramArchive, job_file: Path, *, write: bool = False
) -> None:
    """Looks for packages that a command's imports need and neither the image nor the job's
    requirements have, before any is installed. Raises BadInput with the line to paste, which
    `write` puts into the job file.
    """
    plain = job.model_copy(update={"program": job.program.model_copy(update={"requirements": ()})})
    python = interpreter.find(plain)
    if not job.way.command or python is None or job.image is not None:
        return
    modules, optional = dict[str, str](), dict[str, str]()
    with suppress(BadInput):  # What else is wrong, the trial says.
        run_program(plain, program, "", python, quiet=True, missing=(modules, optional))
    if not modules:
        return
    try:
        packages_found = packages.find_packages(job, program.root, modules, python, optional)
    except Unreachable as reason:
        say(f"the packages of {', '.join(modules)} were not looked up: {reason}")
        return
    for remark in packages_found.remarks:
        say(remark)
    if not packages_found.lines:
        return
    named = {packages.name_of(line) for line in packages_found.lines}
    wanted = [line for line in job.program.requirements if packages.name_of(line) not in named]
    wanted += packages_found.lines
    places = ", ".join(f"{module} ({place})" for module, place in list(modules.items())[:5])
    more = f" and {len(modules) - 5} more" if len(modules) > 5 else ""
    if write:
        packages.write_requirements(job_file, wanted)
        say(f"{job_file}: program.{packages.show_requirements(wanted)}")
        return
    raise BadInput(
        f"the image lacks {places}{more}: below `program:` in {job_file.name} write (or let "
        f"`paddle-aws try --write` do it)\n{packages.show_requirements(wanted)}"
    )


def program_of(job: TrainingJob, job_file: Path) -> ProgramArchive:
    """Returns the program's files on this machine. Raises BadInput."""
    program = job.program
    if not job.has_agent:
        raise BadInput(f"controller is {job.controller}: `try` runs programs of controller job")
    if job.way.old:
        raise BadInput(
            f"runtime is {job.way.runtime}: `try` runs programs of fleet-ps and collective"
        )
    if read := program.archive or program.read_local(job_file.parent, job_file):
        return read
    folder = interpreter.PROJECT / "examples" / program.folder
    if program.origin != "image" or job.image is not None or not folder.is_dir():
        raise BadInput(f"program.from is {program.origin}: its files are not on this machine")
    return ProgramArchive.from_folder(folder, "program.folder")


def source_of(job: TrainingJob, job_file: Path) -> str | Path:
    """Returns the source of the records; empty for a command, which is not run. Raises BadInput."""
    data, file = job.data, check_data(job, job_file, lambda doubt: None)
    if not job.way.passes:
        return ""
    if data is None or data.source is None or job.source_on_volume:
        raise BadInput("the data lies on the volume: name a file of such records with --data")
    return file.resolve() if file is not None else data.source


def run_program(
    job: TrainingJob,
    program: ProgramArchive,
    source: str | Path,
    python: Path,
    *,
    quiet: bool = False,
    missing: tuple[dict[str, str], dict[str, str]] | None = None,
) -> str:
    """Runs the trial and shows its output, or returns it if `quiet`. `missing` gets the modules
    that a command needs and that are nowhere, with the lines that import them, and those that it
    may do without. Raises BadInput, or Unreachable if the source is.
    """
    environment = {
        **os.environ,
        **job.environment,
        "TRAINING_ROLE": "TRIAL",
        "PYTHONWARNINGS": "ignore",
        Variable.RUNTIME: job.way.runtime,
        Variable.TRIED_IMAGE: job.image or "",
        Variable.SEED: str(job.seed),
        Variable.DATA_SOURCE: str(source),
        Variable.DATA_FORMAT: job.data.format if job.data is not None else "lines",
        Variable.HEADER: str(int(job.data is not None and job.data.header)),
        Variable.COMMAND: json.dumps(job.command or ()),
    }
    if job.way.command:
        environment[Variable.TRAINERS] = str(job.trainers)
        environment[Variable.APART] = "true" if job.apart else ""
    with tempfile.TemporaryDirectory() as name:
        scratch, script = Path(name).resolve(), Path(name).resolve() / "program" / "train.py"
        environment |= _unpack(job, program, python, scratch, script.parent)
        (scratch / "left-out.json").write_text(json.dumps(program.left_out()))
        home = scratch / "home"
        home.mkdir()
        # -P: a script's path does not begin with the folder where it is started.
        trial: list[str | Path] = ["-P", "-m", "paddle_node.training.trial", script]
        words = [python / "python", *trial, *job.arguments]
        out = subprocess.PIPE if quiet else None
        try:
            done = subprocess.run(
                words,
                env=environment,
                cwd=home if job.way.passes else script.parent,
                text=True,
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=TRIAL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BadInput(
                f"the program did not end on 100 records within {TRIAL_SECONDS:.0f} s; --no-try "
                "skips this"
            ) from None
        with suppress(FileNotFoundError):
            if missing is not None:
                answers = json.loads((scratch / "missing.json").read_text())
                for modules, places in zip(missing, answers, strict=True):
                    modules.update(places)
    errors = done.stderr.strip()
    _check_end(done.returncode, errors, script.parent)
    if errors and not quiet:
        say(errors)
    return done.stdout or ""


def _unpack(
    job: TrainingJob, program: ProgramArchive, python: Path, scratch: Path, target: Path
) -> dict[str, str]:
    """Unpacks the program to `target`; returns the variables by which it finds its modules."""
    archive, modules = scratch / "program.tar", scratch / "path"
    program.write(archive)
    shutil.unpack_archive(archive, target)
    # Only paddle_node: that Python must not import other modules of this project.
    modules.mkdir()
    (modules / "paddle_node").symlink_to(Path(command_line.__file__).parent)
    # As in a pod: the program's own path first.
    paths = filter(None, (job.environment.get("PYTHONPATH"), str(modules)))
    path = f"{python}:{os.environ.get('PATH', '')}"
    return {"PATH": path, "PYTHONPATH": os.pathsep.join(paths)}


def _check_end(code: int, errors: str, program: Path) -> None:
    """Raises BadInput, or Unreachable if the source is, for a trial that failed."""
    last = errors.rpartition("\n")[2]
    if code == ExitCode.SOURCE_UNREACHABLE:
        raise Unreachable(f"data.source cannot be read from here: {last}; name a file with --data")
    if code < 0:
        where = re.search(rf'File "{program}/([^"]+)", line (\d+)', errors)
        line = f" in {where[1]}:{where[2]}" if where else ""
        raise BadInput(
            f"Paddle crashed (signal {-code}){line}: is an id not below its embedding's number of "
            "rows?"
        )
    if code == ExitCode.BAD_SETTING:
        raise BadInput(last)
    if code:
        raise BadInput(f"the program ended with {code}: {errors}")


def run_command(
    job: TrainingJob,
    program: ProgramArchive,
    inputs: Mapping[str, Path],
    source: Path | None,
    python: Path,
    steps: int,
    seconds: float,
) -> None:
    """Runs the job's command in one pod's processes, and shows its output. `source`: the folder or
    the file with its data; None: it gets none. Raises BadInput if it fails, Failed if none of the
    job's patterns matches a line.
    """
    from k8s_charts.kinds import training_job

    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as free:
        scratch = Path(name).resolve()
        folder = scratch / str(job.volume.mount_path).lstrip("/") / job.name
        unpacked = contract.path(contract.UNPACKED, {"PADDLE_NODE_ROOT": str(scratch)})
        unpacked.parent.mkdir(parents=True)
        variables = _unpack(job, program, python, scratch, unpacked)
        if not (unpacked / "output").exists():
            (unpacked / "output").symlink_to(
                contract.path(contract.ATTEMPT, {"PADDLE_NODE_ROOT": str(scratch)}) / "output"
            )
        _lay_data(job, source, inputs, folder, unpacked)
        environment = {
            **os.environ,
            **training_job.settings(job),
            **variables,
            "PADDLE_NODE_ROOT": str(scratch),
            Variable.JOB_NAME: job.name,
            Variable.JOB_PATH: str(job.volume.mount_path),
            Variable.TRAIN_CONFIG_DIR: "program",
            Variable.TRAINERS: "1",
            Variable.COMPLETION_INDEX: "0",
            Variable.RUN_ID: "trial",
            Variable.POD_IP: "127.0.0.1",
            Variable.PORT: str(free.getsockname()[1]),
        }
        words = [str(python / "python"), "-P", "-m", "paddle_node.training.command_trial"]
        done = subprocess.run(
            [*words, str(steps), str(seconds)],
            env=environment,
            cwd=unpacked,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2] or f"ended with {done.returncode}"
        raise Failed(last) if done.returncode == 1 else BadInput(last)


def _lay_data(
    job: TrainingJob, source: Path | None, inputs: Mapping[str, Path], folder: Path, program: Path
) -> None:
    """Puts data and inputs where the command looks for them, as the data job does; data in a folder
    stays as it is. Raises BadInput.
    """
    shard = folder / "0" / "data"
    shard.parent.mkdir(parents=True)
    laid = source is not None and source.is_file()
    if laid or inputs:
        files = {name: str(file.resolve()) for name, file in inputs.items()}
        shared = job.data is not None and job.data.shared
        environment = {
            **os.environ,
            "OUT_DIR": str(folder),
            "SPLIT_COUNT": "1",
            Variable.DATA_SOURCE: str(source) if laid else "",
            "DATA_FORMAT": "files" if shared or job.data is None else job.data.format,
            Variable.HEADER: str(int(job.data is not None and job.data.header)),
            "SHUFFLE_SEED": "0",
            "PROGRAM_FROM": str(program),
            Variable.INPUTS: json.dumps(files),
        }
        words = [sys.executable, str(interpreter.PROJECT / "trainer_image" / "split_data.py")]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2].removeprefix("split: ")
            raise BadInput(last or "the data cannot be split")
    if source is not None and not laid:
        shard.symlink_to(source)
