"""`paddle-aws results`: a job's passes so far, and downloads of what it saved."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from paddle_node.volume.goodput import Goodput

from paddle_aws.operations.account.bucket_upload import parse_object
from paddle_aws.operations.account.locks.locked_prices import node_hour
from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.jobs.backend import choose_backend
from paddle_aws.operations.jobs.pass_results import PassResult, join_passes
from paddle_aws.operations.jobs.progress.run_record import (
    doubts_of,
    failure_of,
    goodput_of,
    read_attempts,
    read_passes,
    trainers_in,
)
from paddle_aws.operations.jobs.volume.fetching import fetch, fetch_model, fetch_outputs
from paddle_aws.operations.jobs.volume.outputs import OUTPUT, ProgramOutput, fold, list_outputs
from paddle_aws.operations.jobs.volume.saved_passes import choose_pass, saved_passes
from paddle_aws.operations.options import (
    DEFAULT,
    Context,
    JobArgument,
    Json,
    Namespace,
    OfRehearsal,
)
from paddle_aws.operations.screen import age, echo, print_json, print_table, say, span


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

    A small pod with the job's image mounts the volume read-only, for as long as the command runs.
    An interrupted download continues where it stopped, and every file is verified against the
    checksum that was saved with it. What goes to S3 passes through this machine. If the cluster no
    longer has the job's objects, the command needs the job file and outputs.json.

    Example: paddle-aws results quick-start

    Example: paddle-aws results quick-start --model --to models

    Example: paddle-aws results quick-start --download last --to s3://my-bucket/models/quick-start
    """
    with cli_errors("interrupted: what was fetched stays; run the same command again to continue"):
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
            passes = join_passes(saved, read_passes(volume, files))
            attempts = read_attempts(volume, files)
            goodput, failure = goodput_of(attempts), failure_of(attempts)
            if json:
                spent = _goodput_json(goodput, trainers_in(files)) if goodput else None
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
                if doubts := doubts_of(attempts):
                    say(f"its last run is done, but {doubts}")
            if download is not None and (download == OUTPUT or "/" in download):
                fetch_outputs(volume, files, download, to)
            elif download is not None:
                chosen = choose_pass(saved, download)
                fetch(volume, files, chosen.folder, f"pass-{chosen.number:05d}", to)


def _goodput_json(goodput: Goodput, trainers: int) -> dict[str, Any]:
    """Returns the seconds per pod of each part and, if prices were read, the dollars of all
    pods.
    """
    usd, seconds = node_hour(), goodput.seconds
    return {
        "share": round(goodput.share, 4),
        "seconds": {part: round(spent, 3) for part, spent in seconds.items()},
        "usd": {part: round(usd * trainers * spent / 3600, 2) for part, spent in seconds.items()}
        if usd
        else None,
    }


def _show(name: str, passes: list[PassResult], outputs: list[ProgramOutput]) -> None:
    from rich.filesize import decimal

    if passes:
        _show_passes(passes)
    if outputs:
        lines = [
            [
                output.name,
                str(output.files),
                decimal(output.bytes),
                age(datetime.fromtimestamp(output.time, UTC)),
            ]
            for output in fold(outputs)
        ]
        print_table(
            ("OUTPUT", "FILES", "SIZE", "AGE"), lines, right=("FILES", "SIZE"), folds="OUTPUT"
        )
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
