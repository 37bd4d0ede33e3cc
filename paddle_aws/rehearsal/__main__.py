"""`python -m paddle_aws.rehearsal`, which `make rehearse` and `paddle-aws rehearse` call.

Exit codes: 0 only if every part succeeded; 1 if a part failed; 2 for a machine or settings that
cannot be rehearsed, with one sentence; 130 after Ctrl-C.
"""

import argparse
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING

from paddle_aws.operations.errors import BadInput, Failed, cli_errors
from paddle_aws.operations.jobs.rehearsal_backend import FOLDER
from paddle_aws.rehearsal import interruption

if TYPE_CHECKING:
    from k8s_charts.spec import TrainingJob

_MAX_WIDTH = 100
"""Columns: wider lines are harder to read."""
PROJECT = Path(__file__).resolve().parents[2]
_INTERRUPTED = (
    f"interrupted: no process is left; the volume, logs and record stay in {FOLDER}/ (paddle-aws "
    "status, logs, results)"
)


def main() -> None:
    """Parses the arguments, checks the machine, rehearses and shows the summary."""
    parser = argparse.ArgumentParser(
        prog="python -m paddle_aws.rehearsal", description=(__doc__ or "").partition("\n\n")[0]
    )
    option = parser.add_argument
    cluster, job = PROJECT / "cluster.yaml", PROJECT / "job.yaml"
    option("--config", type=Path, default=cluster, help="the cluster's settings")
    option("--job", type=Path, default=job, help="the job's settings")
    settings = "override a setting of the job file; --job - means that these are all settings"
    option("--set", action="append", default=[], metavar="SETTING=VALUE", help=settings)
    local = "deploy nothing: no AWS emulator, the job alone"
    option("--local", action="store_true", help=local)
    keep = "keep: go on with what the last rehearsal left on the volume"
    option("--volume", choices=("new", "keep"), default="new", help=keep)
    option("--data", type=Path, help="a file or folder in place of the job's source")
    option("--outputs", type=Path, default=Path("outputs.json"), help="with --local")
    option("--image-file", type=Path, default=Path("image.json"), help="with --local")
    no_try = "do not try the program on a few records first"
    option("--no-try", action="store_true", help=no_try)
    verbose = "name what of the manifests is without effect on one machine"
    option("--verbose", action="store_true", help=verbose)
    arguments = parser.parse_args()
    with cli_errors(_INTERRUPTED):
        machine = check_machine(PROJECT, local=arguments.local)
        for name in ("job",) if arguments.local else ("config", "job"):
            file = getattr(arguments, name)
            if not file.is_file() and str(file) != "-":
                state = "is not a file" if file.exists() else "does not exist"
                how = "" if arguments.local else f" with --{name}"
                raise BadInput(f"{file} {state}: name an existing file{how}")
        _rehearse(machine, arguments)


def check_machine(project: Path, *, local: bool) -> str:
    """Returns a description of the machine. Raises BadInput with one sentence if the machine cannot
    rehearse.
    """
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "AMD64"):
        raise BadInput(
            f"this machine is {system} {machine}: a rehearsal needs Linux on x86-64; synth, "
            "manifests and deploy work here too"
        )
    if not (project / "trainer_image" / "Dockerfile").is_file():
        raise BadInput(
            f"{project} is an installed package: a rehearsal needs a clone of the project, whose "
            "`make setup` installs this command as well"
        )
    for environment in (".venv-image", *(() if local else (".venv-emulator",))):
        if not (project / environment / "bin" / "python").exists():
            raise BadInput(
                f"{environment} is missing: run `make environments` in {project}, which makes it"
            )
    _check_path("this clone lies in", project)
    return f"Linux x86-64, Python {platform.python_version()}"


def check_folder(job: "TrainingJob") -> None:
    """Raises BadInput with one sentence if the job cannot be rehearsed in this folder."""
    if job.has_parameter_servers:
        _check_path("this folder is", Path.cwd())


def _check_path(what: str, folder: Path) -> None:
    # Imported here: before `make setup`, paddle_node does not exist.
    from paddle_node import contract

    if contract.NOT_IN_PATHS.intersection(str(folder)):
        raise BadInput(
            f"{what} {folder}: parameter servers save through a shell, so a rehearsal needs a path "
            "without spaces, quotes and the shell's other special characters; synth, manifests and "
            "deploy work here too"
        )


def _rehearse(machine: str, arguments: argparse.Namespace) -> None:
    # Imported after the machine's check: these modules need what `make setup` installs.
    from rich.markup import escape

    from paddle_aws.operations.jobs import rehearsal_backend
    from paddle_aws.operations.jobs.job_source import NO_FILE, JobSource
    from paddle_aws.operations.jobs.volume.fetching import model_words
    from paddle_aws.operations.screen import console as make_console
    from paddle_aws.operations.screen import echo
    from paddle_aws.rehearsal.account import Account
    from paddle_aws.rehearsal.folder import RehearsalFolder
    from paddle_aws.rehearsal.rehearse import Rehearsal
    from paddle_aws.rehearsal.screen import Screen
    from paddle_aws.rehearsal.summary import summary

    console = make_console(width=None, markup=True)
    console.width = min(console.width, _MAX_WIDTH)
    started = time.monotonic()
    source = JobSource(arguments.job, tuple(arguments.set))
    job_file = source.file
    name = "a job" if job_file.name == NO_FILE else job_file.name
    console.print(f"[bold]rehearsal[/] of {escape(name)} on {machine}")
    try:
        # Before the folder is emptied: a mistake in a setting must not delete the last run's model.
        job = source.load(fetch=True)
        check_folder(job)
        account: Account
        if arguments.local:
            from paddle_aws.rehearsal.local_account import LocalAccount

            account = LocalAccount(job, arguments.outputs, arguments.image_file)
        else:
            from paddle_aws.rehearsal.deployed_account import DeployedAccount

            account = DeployedAccount(PROJECT, arguments.config.resolve(), source, job)

        def warn(text: str) -> None:
            console.print(text, style="yellow", markup=False)

        rehearsal = Rehearsal(PROJECT, job, job_file, account, warn, arguments.data)
        with interruption.catch_signals(), RehearsalFolder(FOLDER.absolute()) as folder:
            try:
                with Screen(console) as screen:
                    results = rehearsal.run(
                        folder,
                        screen,
                        trial_first=not arguments.no_try,
                        verbose=arguments.verbose,
                        keep_volume=arguments.volume == "keep",
                    )
            finally:
                if folder.begun:
                    folder.tidy()
            console.print(summary(results, screen.finished, time.monotonic() - started))
            # Users copy these lines, which no console wraps or styles.
            last = rehearsal_backend.load(folder.path)
            with last.volume() as volume:
                echo("\n".join(model_words(volume, last.name, last.settings())))
    except OSError as error:
        # For example a full disk, a file of another user, or a killed emulator.
        raise Failed(f"this machine let the rehearsal down: {error}") from None


if __name__ == "__main__":
    interruption.run_command(main)
