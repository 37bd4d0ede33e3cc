"""`python -m rehearsal`, which `make rehearse` calls.

Exit codes: 0 only when every part went well; 1 when a part failed; 2 for a machine or settings that
cannot be rehearsed, with one sentence; 130 after Ctrl-C.
"""

import argparse
import os
import platform
import sys
import time
from pathlib import Path

from operations.errors import BadInput, Exit, Failed, cli_errors

_WIDEST = 100
"""Columns; wider lines are no easier to read."""
_PROJECT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Parses the arguments, checks the machine, rehearses and shows the summary."""
    parser = argparse.ArgumentParser(
        prog="python -m rehearsal", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument(
        "--config", type=Path, default=_PROJECT / "cluster.yaml", help="the cluster's settings"
    )
    parser.add_argument(
        "--job", type=Path, default=_PROJECT / "job.yaml", help="the job's settings"
    )
    parser.add_argument(
        "--no-try",
        action="store_true",
        help="do not try the program on a few records before the deploy",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="name what of the manifests is without effect on one machine",
    )
    arguments = parser.parse_args()
    with cli_errors("interrupted: no process is left, and nothing of this run in .rehearsal/"):
        fit = _check_machine(_PROJECT)
        for setting in (arguments.config, arguments.job):
            if not setting.is_file():
                found = "is not a file" if setting.exists() else "does not exist"
                raise BadInput(f"{setting} {found}: name an existing file with --config or --job")
        _rehearse(arguments.config.resolve(), arguments.job.resolve(), fit, arguments)


def _check_machine(project: Path) -> str:
    """Returns a description of the machine. Raises BadInput with one sentence if the machine cannot
    rehearse.
    """
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "AMD64"):
        raise BadInput(
            f"this machine is {system} {machine}: a rehearsal needs Linux on x86-64; synth, "
            "manifests and deploy work here too"
        )
    for environment in (".venv-image", ".venv-emulator"):
        if not (project / environment / "bin" / "python").exists():
            raise BadInput(f"{environment} is missing: run `make rehearse`, which makes it")
    # Imported here: before `make setup`, paddle_node does not exist.
    from paddle_node import contract

    if contract.NOT_IN_PATHS.intersection(str(project)):
        raise BadInput(
            f"this clone lies in {project}: parameter servers save through a shell, so a "
            "rehearsal needs a path without spaces, quotes and its other special characters; "
            "synth, manifests and deploy work here too"
        )
    return f"Linux x86-64, Python {platform.python_version()}"


def _rehearse(config: Path, job_file: Path, fit: str, arguments: argparse.Namespace) -> None:
    # Imported after the machine's check: these modules need what `make setup` installs.
    from botocore.exceptions import BotoCoreError, ClientError
    from rich.console import Console

    from operations.commands.results import model_words
    from operations.jobs import rehearsal_backend
    from operations.screen import colours
    from rehearsal import interruption
    from rehearsal.rehearse import Rehearsal
    from rehearsal.screen import Screen
    from rehearsal.state import State
    from rehearsal.summary import summary

    console = Console(highlight=False, color_system=colours())
    console.width = min(console.width, _WIDEST)
    started = time.monotonic()
    console.print(f"[bold]rehearsal[/] of {job_file.name} on {fit}")
    try:
        # Before the state is reset: a mistake in a setting must not cost the last run's model.
        rehearsal = Rehearsal(
            _PROJECT,
            config,
            job_file,
            lambda text: console.print(text, style="yellow", markup=False),
        )
        with interruption.caught(), State(_PROJECT / ".rehearsal") as state:
            try:
                with Screen(console) as screen:
                    results = rehearsal.run(
                        state, screen, trial_first=not arguments.no_try, verbose=arguments.verbose
                    )
            except KeyboardInterrupt:
                if state.begun:
                    state.empty()
                raise
            state.tidy()
            console.print(summary(results, screen.finished, time.monotonic() - started))
            # Users copy these lines: print() does not wrap or style them.
            with rehearsal_backend.load(state.folder).volume() as volume:
                print(*model_words(volume, results.job.name), sep="\n")
    except (OSError, BotoCoreError, ClientError) as error:
        # For example a full disk, a file that is not ours, or an emulator that somebody killed.
        raise Failed(f"this machine let the rehearsal down: {error}") from None


if __name__ == "__main__":
    try:
        main()
    except SystemExit as ended:
        if ended.code != Exit.INTERRUPTED:
            raise
        # Python remembers an interrupt that passed through any library's exec() and kills itself
        # with SIGINT at exit, although we caught the interrupt. Everything is cleaned up by now, so
        # we exit directly.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(Exit.INTERRUPTED)
