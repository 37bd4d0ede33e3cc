"""`paddle-aws results`: what a job has learned so far, and a saved pass to download."""

import json
import re
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from paddle_node.volume import passes
from paddle_node.volume.passes import INFERENCE, PASS, PREDICT

from paddle_aws.operations.account.aws import client
from paddle_aws.operations.account.bucket_upload import AT_ONCE, bar, object_of, upload_files
from paddle_aws.operations.cluster.reasons import short
from paddle_aws.operations.commands.cost import node_hour
from paddle_aws.operations.errors import BadInput, cli_errors
from paddle_aws.operations.jobs.backend import Volume, backend
from paddle_aws.operations.jobs.progress.training_metrics import Pass
from paddle_aws.operations.jobs.volume.transfer import download
from paddle_aws.operations.jobs.watch.log_stream import clean
from paddle_aws.operations.options import (
    DEFAULT,
    Context,
    JobArgument,
    Json,
    Namespace,
    OfRehearsal,
)
from paddle_aws.operations.screen import age, as_json, say, show, span
from paddle_aws.settings.file import place

OUTPUT = "output"
"""The folder in the job's where its program writes."""
NAMED = 4
"""Files and folders that one sentence names."""
ALIKE = 6
"""Names that differ in their numbers alone, up to which each has its line."""


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
            measured = metrics(volume, files)
            found, written = _joined(rows, measured), _written(files)
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
                _download_files(volume, files, download, to)
            elif download is not None:
                row = chosen_pass(rows, download)
                _fetch(volume, files, row["folder"], f"pass-{row['pass']:05d}", to)


def saved_passes(
    volume: Volume, files: list[dict[str, Any]], kind: str = PASS
) -> list[dict[str, Any]]:
    """Returns for each saved folder of a kind: its pass, whether it is complete, its files and
    bytes, its place below output/.

    Sorted by number; if several attempts saved the same pass, complete folders come last, the
    newest of them last of all.
    """
    found: dict[str, dict[str, int]] = {}
    for entry in files:
        if match := re.fullmatch(rf"((?:attempts/[^/]+/)?{kind})/(.+)", entry["name"]):
            found.setdefault(match[1], {})[match[2]] = entry["bytes"]
    rows = []
    for folder, sizes in found.items():
        try:
            # Paddle 0.x writes an empty record.
            record = (
                passes.parsed(volume.read(f"output/{folder}/{passes.DONE}"))
                if passes.DONE in sizes
                else None
            )
        except ValueError:
            record = None
        name = folder.rpartition("/")[2]
        if record == {} and folder != name:
            continue  # Half saved, and cleaned up since.
        listed = record.get("files", ()) if record is not None else ()
        complete = record is not None and all(
            sizes.get(file["name"]) == file["bytes"] for file in listed
        )
        attempt = int(record.get("attempt", 0)) if record is not None else 0
        facts = {
            "files": len(sizes),
            "bytes": sum(sizes.values()),
            "folder": folder,
            "attempt": attempt,
        }
        number = int(name[-5:]) if kind == PASS else int((record or {}).get("pass", 0))
        rows.append({"pass": number, "complete": complete, **facts})
    return sorted(rows, key=lambda row: (row["pass"], row["complete"], row["attempt"]))


def last_run(volume: Volume, files: list[dict[str, Any]]) -> tuple[list[Any], str]:
    """Returns the attempts that the volume records, and why the last run failed; empty if it did
    not, or that is not recorded.
    """
    attempts: list[Any] = []
    if not any(file["name"] == "run/attempts.json" for file in files):
        return attempts, ""
    try:
        record = json.loads(volume.read("output/run/attempts.json"))
        attempts = record["attempts"]
        outcome = record["outcomes"][attempts[-1]["run"]]
        return attempts, short(str(outcome["sentence"]), 1000) if outcome["code"] else ""
    except (ValueError, LookupError, TypeError, RecursionError):
        return attempts, ""


def goodput(attempts: list[Any], trainers: int) -> dict[str, Any] | None:
    """Returns for the ended attempts: the share of time spent on training that was kept, and the
    seconds per pod of each part.

    Also in dollars for all pods, if prices were read. None if no attempt has reported.
    """
    seconds: Counter[str] = Counter()
    with suppress(TypeError, AttributeError):
        for one in attempts:
            seconds.update({part: float(spent) for part, spent in one.get("seconds", {}).items()})
    if not (whole := sum(seconds.values())):
        return None
    usd = node_hour()
    cost = (
        {part: round(usd * trainers * spent / 3600, 2) for part, spent in seconds.items()}
        if usd
        else None
    )
    shown = {part: round(spent, 3) for part, spent in seconds.items()}
    return {"share": round(seconds["training"] / whole, 4), "seconds": shown, "usd": cost}


def metrics(volume: Volume, files: list[dict[str, Any]]) -> list[Pass]:
    """Returns the passes that all trainers have reported."""
    from paddle_aws.operations.jobs.progress.training_metrics import passes

    matches = [re.fullmatch(r"node_(\d+)/metrics\.jsonl", entry["name"]) for entry in files]
    trainers = sorted(int(match[1]) for match in matches if match)
    if not trainers:
        return []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        texts = pool.map(
            lambda trainer: volume.read(f"output/node_{trainer}/metrics.jsonl"), trainers
        )
    return passes(
        {
            trainer: text.decode(errors="replace")
            for trainer, text in zip(trainers, texts, strict=True)
        }
    )


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


def _own_files(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the files below output/ that the program wrote: neither the agent's nor passes."""
    others = re.compile(rf"(node_\d+|run|attempts|set-aside|agreed|{PASS})/|\.")
    return [entry for entry in files if not others.match(entry["name"])]


def _written(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns what the program wrote: for each file or folder in output/ its name, the number of
    its files, their bytes, and when the newest was written.
    """
    entries: dict[str, list[dict[str, Any]]] = {}
    for file in _own_files(files):
        name, slash, _ = file["name"].partition("/")
        entries.setdefault(name + slash, []).append(file)
    return [
        {
            "name": name,
            "files": len(group),
            "bytes": sum(file["bytes"] for file in group),
            "time": max(file["time"] for file in group),
        }
        for name, group in sorted(entries.items(), key=lambda entry: numbered(entry[0]))
    ]


def numbered(name: str) -> tuple[tuple[str | int, ...], str]:
    """Returns a name's key to sort by: `epoch-9` comes before `epoch-10`."""
    parts = re.split(r"(\d+)", name)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts)), name


def fold(written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns what the program wrote with more than `ALIKE` names that differ in their numbers
    alone as one line: their first and last name, and what they are together.
    """
    series: dict[str, list[dict[str, Any]]] = {}
    for entry in written:
        series.setdefault(re.sub(r"\d+", "0", entry["name"]), []).append(entry)
    lines = []
    for entries in series.values():
        if len(entries) <= ALIKE:
            lines += entries
        else:
            lines.append(
                {
                    "name": f"{entries[0]['name']} ... {entries[-1]['name']}",
                    "files": sum(entry["files"] for entry in entries),
                    "bytes": sum(entry["bytes"] for entry in entries),
                    "time": max(entry["time"] for entry in entries),
                }
            )
    return lines


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


def fetch_model(volume: Volume, job: str, to: str) -> tuple[str, list[str]]:
    """Fetches the newest model, verified, to `to`/model, a folder or s3://...; returns its place
    and the lines that predict.

    Raises BadInput if there is none.
    """
    files = volume.files("output")
    sealed = [row for row in saved_passes(volume, files, INFERENCE) if row["complete"]]
    if not sealed:
        raise BadInput(
            f"job {job} has no model in output/inference: with fleet-ps and collective it is "
            "there after the last pass; `--download output/PATH` fetches files that any other "
            "program wrote"
        )
    newest: str = max(sealed, key=lambda row: int(row["attempt"]))["folder"]
    return _fetch(volume, files, newest, "model", to), predict_lines(volume, newest)


def predict_lines(volume: Volume, model: str = INFERENCE) -> list[str]:
    """Returns the lines of plain Python, in a model's folder, that predict with it; empty if there
    are none.
    """
    try:
        text = volume.read(f"output/{model}/{PREDICT}", 0, 10_000).decode(errors="replace")
        return [clean(line) for line in text.splitlines()]
    except FileNotFoundError:
        return []


def model_words(volume: Volume, job: str) -> list[str]:
    """Returns how to fetch what a job has trained, for the last lines of a rehearsal."""
    if lines := predict_lines(volume):
        return [
            f"`paddle-aws results {job} --model` fetches the model; in its folder these lines "
            "predict with it:",
            "",
            *lines,
        ]
    names = [entry["name"] for entry in _written(volume.files(OUTPUT))]
    if not names:
        return [f"the program wrote no file to {OUTPUT}/"]
    shown = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
    return [
        f"the program wrote {shown} to {OUTPUT}/: `paddle-aws results {job} --download {OUTPUT}` "
        "fetches that"
    ]


def _download_files(volume: Volume, files: list[dict[str, Any]], path: str, to: str) -> None:
    """Fetches files that the program wrote: no record says what they have to be, so each is
    compared with the volume's.
    """
    inside = path.removeprefix(f"{OUTPUT}/").strip("/")
    if inside in ("", OUTPUT):
        if not (own := _own_files(files)):
            raise BadInput(f"--download is {path}: the program wrote no file to {OUTPUT}/")
        _fetch(volume, own, "", OUTPUT, to, sealed=False)
        return
    wanted = [
        entry
        for entry in files
        if entry["name"] == inside or entry["name"].startswith(f"{inside}/")
    ]
    if not wanted:
        raise BadInput(f"--download is {path}: the volume has no such file or folder below output/")
    above, _, name = inside.rpartition("/")
    single = wanted[0]["name"] == inside
    _fetch(volume, wanted, above if single else inside, "" if single else name, to, sealed=False)


def _fetch(
    volume: Volume,
    files: list[dict[str, Any]],
    home: str,
    name: str,
    to: str,
    *,
    sealed: bool = True,
) -> str:
    """Fetches the files in a folder below output/ to `to`/`name`; returns where they are."""
    inside = f"{home}/" if home else ""
    wanted = [
        {**entry, "name": entry["name"].removeprefix(inside)}
        for entry in files
        if entry["name"].startswith(inside)
    ]
    on_the_way = to.startswith("s3://")
    # A file for S3 is kept until it is uploaded: an interruption costs nothing. Another run's file
    # of that name lies elsewhere.
    newest = max(entry["time"] for entry in wanted)
    target = (place("passes", volume.where, newest) if on_the_way else Path(to)) / name
    with bar(name or wanted[0]["name"], sum(entry["bytes"] for entry in wanted)) as progress:
        download(volume, f"output/{home}".rstrip("/"), wanted, target, progress, sealed=sealed)
    if on_the_way:
        address = f"{to.rstrip('/')}/{name}".rstrip("/")
        upload_files(client("s3"), target, address)
        shutil.rmtree(target)
        return address
    say(f"{name or wanted[0]['name']} is in {target}: {len(wanted)} files, every checksum right")
    return str(target)


def chosen_pass(rows: list[dict[str, Any]], which: str) -> dict[str, Any]:
    """Returns the complete pass that `which` names: a number, or `last` for the one that was saved
    last. Raises BadInput.
    """
    complete = [row for row in rows if row["complete"]]
    shown = ", ".join(map(str, sorted({row["pass"] for row in complete}))) or "none"
    if which == "last":
        if not complete:
            raise BadInput("no pass is complete yet: there is nothing to take")
        return max(complete, key=lambda row: (row["attempt"], row["pass"]))
    named = [row for row in complete if which.isdigit() and row["pass"] == int(which)]
    if not named:
        raise BadInput(f"pass {which} is not complete on the volume: complete are {shown}")
    return named[-1]
