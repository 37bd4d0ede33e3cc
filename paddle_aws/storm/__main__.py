"""`python -m paddle_aws.storm`, which `paddle-aws storm` calls.

Exit codes: 0 if every run equals the calm ones; 1 if a run differs, or the job fails without
faults; 2 for a machine or settings that no storm can run; 130 after Ctrl-C.
"""

import argparse
import time
from contextlib import suppress
from pathlib import Path

from paddle_aws.operations.errors import DISK_ERRORS, BadInput, Exit, Failed, cli_errors
from paddle_aws.rehearsal import interruption
from paddle_aws.rehearsal.__main__ import PROJECT, check_machine

_ACTIONS = Path("/proc/sys/kernel/seccomp/actions_avail")


def main() -> None:
    """Parses the arguments, checks the machine, runs the storm and writes its receipt."""
    parser = argparse.ArgumentParser(prog="python -m paddle_aws.storm")
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default="")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--calm", type=int, default=2)
    parser.add_argument("--no-shrink", action="store_false", dest="shrink")
    parser.add_argument("--fresh", action="store_true")
    arguments = parser.parse_args()
    with cli_errors("interrupted: no process is left"):
        machine = check_machine(PROJECT, local=True)
        if not _ACTIONS.is_file() or "user_notif" not in _ACTIONS.read_text().split():
            raise BadInput(
                "this machine's kernel cannot hold system calls (seccomp's user_notif): a storm "
                "needs Linux 5.9 or later"
            )
        _storm(machine, arguments)


def _refuse_foreign(folder: Path) -> None:
    """Raises BadInput for a folder that no storm made: files in it would be replaced."""
    remedy = "a storm writes there: move it away, or storm in another folder"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise BadInput(f"{folder} is not a folder: {remedy}")
    ours = not folder.is_dir() or (folder / "run").is_dir()
    if not ours and (strangers := sorted(entry.name for entry in folder.iterdir())):
        raise BadInput(f"{folder} holds {strangers[0]}, which is no storm's: {remedy}")


def _storm(machine: str, arguments: argparse.Namespace) -> None:
    # Imported after the machine's check: these modules need what `make setup` installs.
    from paddle_aws.operations.jobs.job_source import JobSource
    from paddle_aws.operations.screen import echo, say
    from paddle_aws.rehearsal.folder import RehearsalFolder
    from paddle_aws.rehearsal.summary import count
    from paddle_aws.storm import receipt
    from paddle_aws.storm.storm import FOLDER, Plan, Storm

    options = vars(arguments)
    job, settings = options.pop("job"), options.pop("set")
    plan = Plan.from_options(**options)
    began = time.monotonic()
    source = JobSource(job.resolve(), tuple(settings))
    # Before anything is replaced: a mistake in a setting must not cost the last receipt.
    storm = Storm(PROJECT, source, plan, echo, FOLDER.absolute())
    _refuse_foreign(FOLDER)
    kind = "the faults that --faults names" if plan.schedule else f"faults of seed {plan.seed}"
    echo(
        f"storm of {job.name} on {machine}: {count(plan.calm, 'undisturbed run')}, "
        f"{2 * plan.calm} if they differ, then {plan.runs} with {kind}"
    )
    try:
        FOLDER.mkdir(exist_ok=True)
        place = FOLDER.absolute() / "run"
        with interruption.catch_signals(), RehearsalFolder(place, "storm") as folder:
            # The receipt stays, with its calm runs, until there is another.
            for pattern in ("run-*.txt", *(() if storm.takes else ("calm-*.txt",))):
                for old in FOLDER.glob(pattern):
                    old.unlink()

            def record() -> tuple[Path, Path]:
                return receipt.write(storm, FOLDER, time.monotonic() - began)

            try:
                storm.run(folder, record)
            except (KeyboardInterrupt, Failed):
                with suppress(OSError):
                    say("receipt of what ran: {} and {}".format(*record()))
                raise
            finally:
                if folder.begun:
                    folder.tidy()
            file, page = record()
    except OSError as error:
        where = error.filename or f"{FOLDER.absolute()}, or what the output goes to"
        remedy = "; free space there" if error.errno in DISK_ERRORS else ""
        raise Failed(
            f"this machine let the storm down: {where}: {error.strerror or error}{remedy}"
        ) from None
    echo(receipt.conclusion(storm, time.monotonic() - began))
    echo(f"receipt: {file} and {page}")
    if storm.failed:
        raise SystemExit(Exit.FAILED)


if __name__ == "__main__":
    interruption.run_command(main)
