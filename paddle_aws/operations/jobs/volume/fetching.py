"""Fetches a saved pass, the model or what the program wrote, to a folder or to S3."""

import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from paddle_node.volume.passes import INFERENCE, PREDICT

from paddle_aws.operations.account.aws import client
from paddle_aws.operations.account.bucket_upload import bar, upload_files
from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.jobs.volume.access import Volume
from paddle_aws.operations.jobs.volume.outputs import OUTPUT, list_outputs, program_files
from paddle_aws.operations.jobs.volume.saved_passes import saved_passes
from paddle_aws.operations.jobs.volume.transfer import download
from paddle_aws.operations.screen import clean, say
from paddle_settings.file import cache_path

MOST_NAMED = 4
"""Files and folders that one sentence names."""


def fetch_model(volume: Volume, job: str, to: str) -> tuple[str, list[str]]:
    """Fetches the newest model, verified, to `to`/model, a folder or s3://...; returns its place
    and the lines that predict.

    Raises BadInput if there is none.
    """
    files = volume.files("output")
    models = [model for model in saved_passes(volume, files, INFERENCE) if model.complete]
    if not models:
        raise BadInput(
            f"job {job} has no model in output/inference: with fleet-ps and collective it is "
            "there after the last pass; `--download output/PATH` fetches files that any other "
            "program wrote"
        )
    newest = max(models, key=lambda model: model.attempt).folder
    return fetch(volume, files, newest, "model", to), predict_lines(volume, newest)


def fetch_final(volume: Volume, job: str, pattern: str, to: str) -> list[str]:
    """Fetches what a command wrote last of the files that its `success` names to `to`; returns the
    line that loads it. Raises BadInput if there is none.
    """
    files = volume.files(OUTPUT)
    known = PurePosixPath(pattern)
    depth = len(known.parts)
    tops: dict[str, float] = {}
    for entry in program_files(files):
        top = PurePosixPath(OUTPUT, *PurePosixPath(entry["name"]).parts[: depth - 1])
        if top.match(pattern):
            tops[str(top)] = max(entry["time"], tops.get(str(top), 0.0))
    if not tops:
        raise BadInput(f"job {job} has no model yet: nothing matches {pattern}")
    newest = max(tops, key=tops.__getitem__)
    fetch_outputs(volume, files, newest, to)
    name = PurePosixPath(newest).name
    if name.endswith(".safetensors"):
        return [f'weights = safetensors.paddle.load_file("{name}")']
    weights = name if name.endswith(".pdparams") else f"{PurePosixPath(name).stem}.pdparams"
    return [f'weights = paddle.load("{weights}")  # model.set_state_dict(weights)']


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
    names = [output.name for output in list_outputs(volume.files(OUTPUT))]
    if not names:
        return [f"the program wrote no file to {OUTPUT}/"]
    shown = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
    return [
        f"the program wrote {shown} to {OUTPUT}/: `paddle-aws results {job} --download {OUTPUT}` "
        "fetches that"
    ]


def fetch_outputs(volume: Volume, files: list[dict[str, Any]], path: str, to: str) -> None:
    """Fetches files that the program wrote: no record says what they have to be, so each is
    compared with the volume's.
    """
    inside = path.removeprefix(f"{OUTPUT}/").strip("/")
    if inside in ("", OUTPUT):
        if not (written := program_files(files)):
            raise BadInput(f"--download is {path}: the program wrote no file to {OUTPUT}/")
        fetch(volume, written, "", OUTPUT, to, sealed=False)
        return
    chosen = [
        entry
        for entry in files
        if entry["name"] == inside or entry["name"].startswith(f"{inside}/")
    ]
    if not chosen:
        raise BadInput(f"--download is {path}: the volume has no such file or folder below output/")
    above, _, name = inside.rpartition("/")
    single = chosen[0]["name"] == inside
    fetch(volume, chosen, above if single else inside, "" if single else name, to, sealed=False)


def fetch(
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
    chosen = [
        {**entry, "name": entry["name"].removeprefix(inside)}
        for entry in files
        if entry["name"].startswith(inside)
    ]
    on_the_way = to.startswith("s3://")
    # A file for S3 is kept until it is uploaded: an interruption costs nothing. Another run's file
    # of that name lies elsewhere.
    newest = max(entry["time"] for entry in chosen)
    target = (cache_path("passes", volume.where, newest) if on_the_way else Path(to)) / name
    with bar(name or chosen[0]["name"], sum(entry["bytes"] for entry in chosen)) as progress:
        download(volume, f"output/{home}".rstrip("/"), chosen, target, progress, sealed=sealed)
    if on_the_way:
        address = f"{to.rstrip('/')}/{name}".rstrip("/")
        upload_files(client("s3"), target, address)
        shutil.rmtree(target)
        return address
    say(f"{name or chosen[0]['name']} is in {target}: {len(chosen)} files, every checksum right")
    return str(target)
