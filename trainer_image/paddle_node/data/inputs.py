"""A job's inputs beside its data: weights, a dictionary, what an earlier job trained.

A copy comes to the volume (paddle_node.volume.input_copies) whole, by one rename.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import urlsplit

from paddle_node import contract
from paddle_node.contract import ExitCode, Variable
from paddle_node.data.slices import Names
from paddle_node.data.sources import open_source, unpack
from paddle_node.data.sources.local_source import LocalSource
from paddle_node.data.sources.source import Object, Source, require_relative, summary
from paddle_node.failure import BadData, BadSetting, Failure
from paddle_node.runtimes.attempt_output import OURS
from paddle_node.volume import attempts, durable, lease
from paddle_node.volume.data_manifest import Input
from paddle_node.volume.input_copies import FILES, LISTING, verify
from paddle_node.volume.job_folder import JobFolder

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")
"""Endings of files that are unpacked; all others stay as they are (a .npz is a zip, too)."""
OF_JOB = "job:"
BLOCK = 1 << 20
ABANDONED = 86_400.0
"""Seconds after which the draft of a dead pod is removed."""


def bring(
    inputs: Mapping[str, str],
    volume: Path,
    pod: str,
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> tuple[Input, ...]:
    """Returns the inputs, each with a verified copy on the volume; `inputs`: where each is, by
    name. Raises Failure, which names the input; OSError.
    """
    place = volume / contract.INPUTS
    if inputs:
        place.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(place)
    brought = []
    for name, address in sorted(inputs.items()):
        try:
            brought.append(_bring(name, address, place, pod, environ, say))
        except Failure as failure:
            sentence = failure.sentence.replace(Variable.DATA_SOURCE, f"inputs.{name}")
            named = sentence if f"inputs.{name}" in sentence else f"inputs.{name}: {sentence}"
            raise Failure(failure.code, named) from None
    return tuple(brought)


def _bring(
    name: str,
    address: str,
    place: Path,
    pod: str,
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> Input:
    source, objects = _source(name, address, environ)
    mark = summary(source, objects).etag.rpartition(":")[2]
    record = place / "sources" / f"{mark}.json"
    if mark and (brought := _recorded_copy(record, name)) is not None:
        with contextlib.suppress(FileNotFoundError):  # A person has removed the copy.
            verify(brought, place, whole=True)
            say(f"{name}: its copy {brought.digest[:12]} is there and verified")
            return brought
    began, draft = time.monotonic(), place / f".{pod}-{name}"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        listing = _copy(source, objects, draft)
        text = json.dumps(listing, indent=1, sort_keys=True).encode()
        durable.write(draft / LISTING, text)
        digest = hashlib.sha256(text).hexdigest()
        brought = Input(name, digest, _path(address, objects, listing))
        try:
            draft.replace(place / digest)
            durable.sync(place)
        except OSError:
            if not (place / digest).is_dir():
                raise
            verify(brought, place, whole=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if mark:
        record.parent.mkdir(exist_ok=True)
        durable.write(record, json.dumps({"digest": digest, "path": brought.path}))
    size = sum(int(file["bytes"]) for file in listing)
    say(
        f"{name}: {len(listing)} file{'s' * (len(listing) != 1)}, {size:,} bytes from "
        f"{source.uri}, in {time.monotonic() - began:.1f} s"
    )
    return brought


def _recorded_copy(record: Path, name: str) -> Input | None:
    """Returns the copy that was once made of this very source."""
    try:
        document = json.loads(record.read_text())
        return Input(name, str(document["digest"]), str(document["path"]))
    except (FileNotFoundError, ValueError, LookupError, TypeError, BadData):
        return None


def _copy(source: Source, objects: list[Object], draft: Path) -> list[dict[str, str | int]]:
    """Copies the source's files below the draft. Returns their listing, sorted by name."""
    listing: dict[str, dict[str, str | int]] = {}
    names = Names()
    for thing in objects:
        for name, content in _members(source, thing):
            name = require_relative(name, thing.name)
            names.add(name)
            file = draft / FILES / name
            file.parent.mkdir(parents=True, exist_ok=True)
            digest, size = hashlib.sha256(), 0
            with file.open("xb") as copy:
                while block := content.read(BLOCK):
                    digest.update(block)
                    size += len(block)
                    copy.write(block)
            durable.sync(file)
            file.chmod(0o444)
            listing[name] = {"name": name, "bytes": size, "sha256": digest.hexdigest()}
    for folder in {draft / FILES, *(file.parent for file in (draft / FILES).rglob("*"))}:
        durable.sync(folder)
    return [listing[name] for name in sorted(listing)]


def _members(source: Source, thing: Object) -> Iterator[tuple[str, BinaryIO]]:
    """Yields the files in an object. An archive is unpacked into the folder that it lies in."""
    if not thing.name.lower().endswith(ARCHIVES):
        with source.open(thing) as content:
            yield thing.name, content
        return
    above = PurePosixPath(thing.name).parent
    for name, content in unpack.members(source, thing, "shared"):
        yield str(above / name), content


def _path(address: str, objects: list[Object], listing: list[dict[str, str | int]]) -> str:
    """Returns the one file, where the address names a file, else the folder of all."""
    (first, *others), last = objects, PurePosixPath(urlsplit(address).path or address).name
    named = first.name == last or fnmatchcase(first.name, last)
    if others or not named or first.name.lower().endswith(ARCHIVES):
        return FILES
    return f"{FILES}/{listing[0]['name']}"


def _source(name: str, address: str, environ: Mapping[str, str]) -> tuple[Source, list[Object]]:
    """Returns where an input is, and its files. Raises Failure."""
    if not address.startswith(OF_JOB):
        source = open_source(address, environ)
        return source, source.objects()
    job, _, path = address.removeprefix(OF_JOB).partition("/")
    mount = environ.get(Variable.JOB_PATH, contract.VOLUME_MOUNT)
    folder = JobFolder(contract.path(mount, environ) / job)
    _check_job(f"inputs.{name} is job {job}", folder, job, path)
    durable.refresh(folder.output)
    if not path and (folder.output / "inference").is_dir():
        path = "inference"
    output = f"{mount}/{job}/output"
    source = LocalSource(f"{output}/{path}" if path else output, environ)
    files = source.objects()
    if not path:
        files = [file for file in files if not OURS.fullmatch(file.name.partition("/")[0])]
    if not files:
        raise BadSetting(f"inputs.{name} is job {job}: it left nothing in {output}")
    root = os.path.realpath(folder.root)
    for file in files:
        # Its program may have left any link, and this pod sees more than a trainer does.
        if not Path(os.path.realpath(source.path(file))).is_relative_to(root):
            raise BadData(f"inputs.{name} is job {job}: its {file.name} leads out of its folder")
    return source, files


def _check_job(who: str, folder: JobFolder, job: str, path: str) -> None:
    """Raises BadSetting unless the job has finished, or `path` names what it left and it does not
    run.
    """
    record = attempts.read(folder)
    outcome = record.last_outcome
    if not record.attempts:
        raise BadSetting(f"{who}: no job of that name has trained on this volume")
    holder = lease.holder(folder.run_state)
    if outcome is None and holder and time.time() - holder.renewed < holder.expiry:
        raise BadSetting(f"{who}, which still trains: wait for its end (paddle-aws wait {job})")
    if path or (outcome is not None and outcome.code == ExitCode.DONE):
        return
    how = "has not finished" if outcome is None else f"failed: {outcome.sentence}"
    raise BadSetting(
        f"{who}, which {how}; resume it to its end, or name a checkpoint of it with path: "
        "<a file, folder or pattern below its output>"
    )


def _remove_abandoned(place: Path) -> None:
    for entry in durable.entries(place):
        if entry.name.startswith(".") and time.time() - entry.stat().st_mtime > ABANDONED:
            shutil.rmtree(entry.path, ignore_errors=True)
