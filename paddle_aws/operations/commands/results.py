"""`paddle-aws results`: a job's passes so far, and downloads of what it saved."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from paddle_node.volume.goodput import Goodput

from paddle_aws.operations import options
from paddle_aws.operations.account.bucket_upload import parse_object
from paddle_aws.operations.account.locks.lock_file import node_hour
from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.jobs.backend import choose_backend
from paddle_aws.operations.jobs.progress import run_record
from paddle_aws.operations.jobs.progress.training_metrics import Pass
from paddle_aws.operations.jobs.volume.fetching import fetch, fetch_model, fetch_outputs
from paddle_aws.operations.jobs.volume.outputs import OUTPUT, ProgramOutput, fold, list_outputs
from paddle_aws.operations.jobs.volume.saved_passes import SavedPass, choose_pass, saved_passes
from paddle_aws.operations.screen import age, echo, print_json, print_table, say, span


@dataclass(frozen=True)
class PassResult:
    """A pass: the files that were saved of it, and what its trainers measured."""

    number: int
    saved: SavedPass | None
    """None: it is not on the volume, or no longer."""
    measured: Pass | None
    """None: not all of its trainers have reported it."""

    @property
    def state(self) -> str:
        """Whether it can be fetched: complete, incomplete or removed."""
        if self.saved is None or not (self.saved.complete or self.saved.files):
            return "removed"
        return "complete" if self.saved.complete else "incomplete"

    def as_json(self) -> dict[str, Any]:
        """Returns what `results --json` says of it, whose keys are a promise."""
        saved = {"pass": self.number, "complete": False, "files": 0, "bytes": 0}
        if self.saved is not None:
            saved = self.saved.as_json()
        if self.measured is None:
            return saved
        measured = {
            name: getattr(self.measured, name)
            for name in ("loss", "records", "seconds", "attempt", "ended")
        }
        trainers = [
            {name: getattr(trainer, name) for name in ("trainer", "loss", "records", "seconds")}
            for trainer in self.measured.trainers
        ]
        return saved | measured | {"trainers": trainers}


@cli_errors("interrupted: what was fetched stays; run the same command again to continue")
def results(
    job: options.JobArgument = options.DEFAULT,
    model: Annotated[
        bool,
        typer.Option(
            "--model",
            help="Fetch the model that plain Paddle loads, and show the lines that predict with "
            "it.",
        ),
    ] = False,
    download: Annotated[
        str | None,
        typer.Option(
            metavar="PASS|PATH",
            help="Fetch a saved pass: its number, or `last`; or what the program wrote: "
            "output/PATH, or all of it: output.",
        ),
    ] = None,
    to: Annotated[
        str, typer.Option(help="Where it goes: a folder, or s3://bucket/prefix.")
    ] = "results",
    rehearsal: options.OfRehearsal = None,
    namespace: options.Namespace = None,
    context: options.Context = None,
    json: options.Json = False,
) -> None:
    """Show a job's passes: which are complete, their loss and time, and what its program wrote;
    fetch the model, a pass or files without SSH.

    A small pod with the job's image mounts the volume read-only, for as long as the command runs.
    An interrupted download continues where it stopped, and every file is verified against the
    checksum that was saved with it. What goes to S3 passes through this machine. If the cluster no
    longer has the job's objects, the command needs the job file and outputs.json.

    Example: paddle-aws results quick-start

    Example: paddle-aws results quick-start --model --to models

    Example: paddle-aws results quick-start --download last --to s3://my-bucket/models/quick-start
    """
    if to.startswith("s3://"):
        # Refuses a bad address before a pass is fetched for it.
        parse_object(to)
    if model and (download or json):
        raise BadInput("--model fetches the model alone: leave --download and --json out")
    where = choose_backend(job, namespace, context, rehearsal)
    with where.volume() as volume:
        if model:
            for line in fetch_model(volume, where.name, where.settings(), to)[1]:
                echo(line)
            return
        files = volume.files(OUTPUT)
        saved, outputs = saved_passes(volume, files), list_outputs(files)
        # Of several saves of one pass, the last counts.
        saves = {pass_.number: pass_ for pass_ in saved}
        measures = {pass_.number: pass_ for pass_ in run_record.read_passes(volume, files)}
        numbers = sorted(saves.keys() | measures.keys())
        passes = [PassResult(number, saves.get(number), measures.get(number)) for number in numbers]
        attempts = run_record.read_attempts(volume, files)
        goodput, failure = run_record.goodput_of(attempts), run_record.failure_of(attempts)
        if json:
            spent = _goodput_json(goodput, run_record.trainers_in(files)) if goodput else None
            print_json(
                {
                    "job": where.name,
                    "failure": failure,
                    "goodput": spent,
                    "passes": [pass_.as_json() for pass_ in passes],
                    "files": [output.as_json() for output in outputs],
                }
            )
        else:
            _show(where.name, passes, outputs)
            if goodput:
                say(
                    f"goodput {goodput.share:.0%}: `paddle-aws board` shows where the rest "
                    "of the time went"
                )
            if failure:
                say(f"its last run failed: {failure}")
            if doubts := run_record.doubts_of(attempts):
                say(f"its last run is done, but {doubts}")
        if download is not None and (download == OUTPUT or "/" in download):
            fetch_outputs(volume, files, download, to)
        elif download is not None:
            chosen = choose_pass(saved, download)
            fetch(volume, files, chosen.folder, f"pass-{chosen.number:05d}", to)


def _goodput_json(goodput: Goodput, trainers: int) -> dict[str, Any]:
    """Returns the seconds per pod of each part and, if prices were read, all pods' dollars."""
    usd, spent = node_hour(), goodput.seconds.items()
    dollars = {part: round((usd or 0) * trainers * time / 3600, 2) for part, time in spent}
    seconds = {part: round(time, 3) for part, time in spent}
    share = round(goodput.share, 4)
    return {"share": share, "seconds": seconds, "usd": dollars if usd else None}


def _show(name: str, passes: list[PassResult], outputs: list[ProgramOutput]) -> None:
    from rich.filesize import decimal

    if passes:
        _show_passes(passes)
    if outputs:
        lines = []
        for output in fold(outputs):
            since = age(datetime.fromtimestamp(output.time, UTC))
            lines.append([output.name, str(output.files), decimal(output.bytes), since])
        columns = ("OUTPUT", "FILES", "SIZE", "AGE")
        print_table(columns, lines, right=("FILES", "SIZE"), folds="OUTPUT")
        say(f"`--download {OUTPUT}/NAME` fetches a file or a folder, `--download {OUTPUT}` all")
    if not passes and not outputs:
        say(f"job {name} has neither finished a pass nor written a file to {OUTPUT}/ yet")


def _show_passes(passes: list[PassResult]) -> None:
    from rich.filesize import decimal

    lines = []
    for pass_ in passes:
        size = decimal(pass_.saved.bytes) if pass_.saved and pass_.saved.files else ""
        line, measured = [str(pass_.number), pass_.state, size, "", "", ""], pass_.measured
        if measured is not None:
            line[3:] = f"{measured.loss:.4f}", f"{measured.records:,}", span(measured.seconds)
        lines.append(line)
    columns = ("PASS", "SAVED", "SIZE", "LOSS", "RECORDS", "TIME")
    print_table(columns, lines, right=("PASS", "SIZE", "LOSS", "RECORDS", "TIME"))
