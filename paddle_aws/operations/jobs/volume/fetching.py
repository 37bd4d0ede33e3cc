"""Fetches a saved pass, the model or what the program wrote, to a folder or to S3."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from paddle_node.contract import EXIT_CODE
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

LOADS = {
    ".pdparams": 'paddle.load("{1}")  # model.set_state_dict(weights)',
    ".safetensors": 'safetensors.{0}.load_file("{1}")',
    **dict.fromkeys((".pt", ".pth"), 'torch.load("{1}")'),
}
"""By a file's ending, how its weights are loaded."""
_SHARD = re.compile(r"-\d+(?=-of-)")
MOST_NAMED = 4
"""Files and folders that one sentence names."""


def fetch_model(
    volume: Volume, job: str, settings: Mapping[str, str], to: str
) -> tuple[str, list[str]]:
    """Fetches the trained model to `to`, a folder or s3://...: of a command what its recipe or its
    `success` names, else the newest of output/inference, verified. `settings`: as `settings_of`
    names them. Returns its place and the lines that load it, or predict.

    Raises BadInput if there is none.
    """
    files = volume.files(OUTPUT)
    pattern = settings.get("model") or settings.get("success", EXIT_CODE)
    if pattern != EXIT_CODE:
        library = "torch" if "torchrun" in settings.get("command", "") else "paddle"
        return _fetch_final(volume, files, job, pattern, library, to)
    models = [model for model in saved_passes(volume, files, INFERENCE) if model.complete]
    if not models:
        raise BadInput(
            f"job {job} has no model in output/inference: without `command` it is there after the "
            "last pass; with one, `success` names the file; `--download output/PATH` fetches any"
        )
    newest = max(models, key=lambda model: model.attempt).folder
    return fetch(volume, files, newest, "model", to), predict_lines(volume, newest)


def _fetch_final(
    volume: Volume, files: list[dict[str, Any]], job: str, pattern: str, library: str, to: str
) -> tuple[str, list[str]]:
    """Fetches what matches and was written last, weights first, with all its shards."""
    depth = len(PurePosixPath(pattern).parts)
    tops: dict[PurePosixPath, list[dict[str, Any]]] = {}
    for entry in program_files(files):
        top = PurePosixPath(*PurePosixPath(OUTPUT, entry["name"]).parts[:depth])
        if top.match(pattern):
            tops.setdefault(top, []).append(entry)
    if not tops:
        raise BadInput(f"job {job} has no model yet: nothing matches {pattern}")
    weights = [top for top in tops if top.suffix in LOADS]
    newest = max(weights or tops, key=lambda top: max(entry["time"] for entry in tops[top]))
    shards = sorted(top for top in tops if _SHARD.sub("", str(top)) == _SHARD.sub("", str(newest)))
    place, *_ = [fetch_outputs(volume, files, str(top), to) for top in shards]
    fetched = [PurePosixPath(OUTPUT, entry["name"]) for top in shards for entry in tops[top]]
    fetched = sorted(file for file in fetched if file.suffix in LOADS)
    loaded = [file for file in fetched if "model" in file.name] or fetched
    lines = [LOADS[file.suffix].format(library, file.relative_to(newest.parent)) for file in loaded]
    return place, [f"weights {'|=' if number else '='} {line}" for number, line in enumerate(lines)]


def predict_lines(volume: Volume, model: str = INFERENCE) -> list[str]:
    """Returns the lines of plain Python, in a model's folder, that predict with it; empty if there
    are none.
    """
    try:
        text = volume.read(f"output/{model}/{PREDICT}", 0, 10_000).decode(errors="replace")
        return [clean(line) for line in text.splitlines()]
    except FileNotFoundError:
        return []


def model_words(volume: Volume, job: str, settings: Mapping[str, str]) -> list[str]:
    """Returns how to fetch what a job has trained, for the last lines of a rehearsal."""
    fetches = f"`paddle-aws results {job} --model` fetches the model"
    if lines := predict_lines(volume):
        return [f"{fetches}; in its folder these lines predict with it:", "", *lines]
    if settings.get("model"):
        return [f"{fetches}, and shows the line that loads it"]
    names = [output.name for output in list_outputs(volume.files(OUTPUT))]
    if not names:
        return [f"the program wrote no file to {OUTPUT}/"]
    shown = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
    return [
        f"the program wrote {shown} to {OUTPUT}/: `paddle-aws results {job} --download {OUTPUT}` "
        "fetches that"
    ]


def fetch_outputs(volume: Volume, files: list[dict[str, Any]], path: str, to: str) -> str:
    """Fetches files that the program wrote, and returns their place: no record says what they have
    to be, so each is compared with the volume's.
    """
    inside = path.removeprefix(f"{OUTPUT}/").strip("/")
    if inside in ("", OUTPUT):
        if not (written := program_files(files)):
            raise BadInput(f"--download is {path}: the program wrote no file to {OUTPUT}/")
        return fetch(volume, written, "", OUTPUT, to, sealed=False)
    chosen = [entry for entry in files if f"{entry['name']}/".startswith(f"{inside}/")]
    if not chosen:
        raise BadInput(f"--download is {path}: the volume has no such file or folder below output/")
    above, _, name = inside.rpartition("/")
    single = chosen[0]["name"] == inside
    if single:
        return f"{fetch(volume, chosen, above, '', to, sealed=False).rstrip('/')}/{name}"
    return fetch(volume, chosen, inside, name, to, sealed=False)


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
