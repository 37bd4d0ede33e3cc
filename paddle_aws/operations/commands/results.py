"""`paddle-aws results`: what a job has learned so far, and a saved pass to download."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from paddle_aws.operations.account.bucket_upload import object_of
from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.jobs.backend import backend
from paddle_aws.operations.jobs.progress.run_record import goodput, last_run, read_passes
from paddle_aws.operations.jobs.progress.training_metrics import Pass
from paddle_aws.operations.jobs.volume.fetching import fetch, fetch_model, fetch_outputs
from paddle_aws.operations.jobs.volume.outputs import OUTPUT, fold, list_outputs
from paddle_aws.operations.jobs.volume.saved_passes import chosen_pass, saved_passes
from paddle_aws.operations.options import (
    DEFAULT,
    Context,
    JobArgument,
    Json,
    Namespace,
    OfRehearsal,
)
from paddle_aws.operations.screen import age, as_json, say, show, span


def results(
    job: JobArgument = DEFAULT,
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
    rehearsal: OfRehearsal = None,
    namespace: Namespace = None,
    context: Context = None,
    json: Json = False,
) -> None:
    """Show a job's passes: which are complete, their loss and time, and what its program wrote;
    fetch the model, a pass or files without SSH.

    A small pod with the job's image mounts the volume read-only and is gone afterwards. An
    interrupted download continues where it was, and every file is verified against the checksum
    that was saved with it. What goes to S3 passes through this machine. A job that the cluster has
    forgotten needs its job file and outputs.json.

    Example: paddle-aws results quick-start

    Example: paddle-aws results quick-start --model --to models

    Example: paddle-aws results quick-start --download last --to s3://my-bucket/models/quick-start
    """
    with cli_errors("interrupted: what was fetched stays; run the same command again to continue"):
        if to.startswith("s3://"):
            # Refuses a bad address before a pass is fetched for it.
            object_of(to)
        if model and (download or json):
            raise BadInput("--model fetches the model alone: leave --download and --json out")
        where = backend(job, namespace, context, rehearsal)
        with where.volume() as volume:
            if model:
                _, lines = fetch_model(volume, where.name, to)
                for line in lines:
                    typer.echo(line)
                return
            files = volume.files("output")
            rows = saved_passes(volume, files)
            measured = read_passes(volume, files)
            found, written = _joined(rows, measured), list_outputs(files)
            attempts, failure = last_run(volume, files)
            spent = goodput(
                attempts,
                len(
                    {
                        file["name"].partition("/")[0]
                        for file in files
                        if file["name"].startswith("node_")
                    }
                ),
            )
            if json:
                facts = {"failure": failure, "goodput": spent, "passes": found, "files": written}
                as_json({"job": where.name, **facts})
            else:
                _show(where.name, found, written)
                if spent:
                    say(
                        f"goodput {spent['share']:.0%}: `paddle-aws board` shows where the rest "
                        "of the time went"
                    )
                if failure:
                    say(f"its last run failed: {failure}")
            if download is not None and (download == OUTPUT or "/" in download):
                fetch_outputs(volume, files, download, to)
            elif download is not None:
                row = chosen_pass(rows, download)
                fetch(volume, files, row["folder"], f"pass-{row['pass']:05d}", to)


def _joined(rows: list[dict[str, Any]], measured: list[Pass]) -> list[dict[str, Any]]:
    """Joins what is saved of each pass with what its trainers measured; some passes are no longer
    on the volume.
    """
    found = {row["pass"]: row for row in rows}
    for one in measured:
        trainers = [
            {name: getattr(each, name) for name in ("trainer", "loss", "records", "seconds")}
            for each in one.trainers
        ]
        facts = {
            name: getattr(one, name) for name in ("loss", "records", "seconds", "attempt", "ended")
        }
        row = found.get(one.number, {"pass": one.number, "complete": False, "files": 0, "bytes": 0})
        found[one.number] = row | facts | {"trainers": trainers}
    return [found[number] for number in sorted(found)]


def _show(name: str, found: list[dict[str, Any]], written: list[dict[str, Any]]) -> None:
    from rich.filesize import decimal

    if found:
        _show_passes(found)
    if written:
        lines = [
            [
                entry["name"],
                str(entry["files"]),
                decimal(entry["bytes"]),
                age(datetime.fromtimestamp(entry["time"], UTC)),
            ]
            for entry in fold(written)
        ]
        show(("OUTPUT", "FILES", "SIZE", "AGE"), lines, right=("FILES", "SIZE"), folds="OUTPUT")
        say(f"`--download {OUTPUT}/NAME` fetches a file or a folder, `--download {OUTPUT}` all")
    if not found and not written:
        say(f"job {name} has neither finished a pass nor written a file to {OUTPUT}/ yet")


def _show_passes(found: list[dict[str, Any]]) -> None:
    from rich.filesize import decimal

    lines = []
    for row in found:
        saved = "complete" if row["complete"] else "incomplete" if row["files"] else "removed"
        facts = ["", "", ""]
        if "loss" in row:
            facts = [f"{row['loss']:.4f}", f"{row['records']:,}", span(row["seconds"])]
        lines.append(
            [str(row["pass"]), saved, decimal(row["bytes"]) if row["files"] else "", *facts]
        )
    columns = ("PASS", "SAVED", "SIZE", "LOSS", "RECORDS", "TIME")
    show(columns, lines, right=("PASS", "SIZE", "LOSS", "RECORDS", "TIME"))
