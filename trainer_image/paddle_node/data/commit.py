"""Combines the indexes' files into one split, and makes the newest split the job's data.

An index or a split is complete once its manifest exists, which is created only once. Nothing
complete is rewritten, and no user's file is replaced. Data that no run reads any more is renamed
before its removal, so that no pod can complete a half-removed split.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from paddle_node.contract import SPLIT_MANIFEST
from paddle_node.data.deal import HELD_OUT
from paddle_node.data.slices import Names
from paddle_node.failure import BadData
from paddle_node.volume import attempts, data_manifest, durable, lease
from paddle_node.volume.data_manifest import DataManifest, Shard, name_in_shard
from paddle_node.volume.job_folder import JobFolder

MANIFEST = SPLIT_MANIFEST
GONE = ".removed-"
CURRENT = "current"
SILENT = 3600.0
"""An incomplete split counts as abandoned after so many seconds without a write, or after 24 times
as long if an index waits for the others.
"""


def create(manifest: DataManifest, path: Path) -> DataManifest:
    """Creates the manifest at `path`. Returns the manifest that is there: this one, or that of a
    faster pod.
    """
    durable.create(path, manifest.as_json())
    manifest_there = data_manifest.read(path)
    if manifest_there is None:
        raise FileNotFoundError(2, os.strerror(2), str(path))
    return manifest_there


def complete(place: Path, pods: int) -> DataManifest | None:
    """Completes the split at `place` if all indexes are there. Returns its manifest, or None.
    Raises `BadData` for bad ones.
    """
    if (done := data_manifest.read(place / MANIFEST)) is not None:
        return done
    manifests = [
        index
        for number in range(pods)
        if (index := data_manifest.read(place / f"{number}.json")) is not None
    ]
    if len(manifests) < pods:
        return None
    newest = manifests[0]
    for number, other in enumerate(manifests):
        if not other.is_same_split(newest):
            raise BadData(
                f"{newest.source.uri} changed while it was being split (index 0 found "
                f"{newest.source.size} bytes, index {number} {other.source.size}, of other "
                "content): run the data job again"
            )
    shards = tuple(
        Shard(number, tuple(file for index in manifests for file in index.shards[number].files))
        for number in range(len(newest.shards))
    )
    held_out = tuple(file for index in manifests for file in index.held_out)
    records, held = sum(shard.records for shard in shards), sum(file.records for file in held_out)
    if min(shard.records for shard in shards) < 1:
        beside = f" beside {held} held out" if held else ""
        raise BadData(
            f"{newest.source.uri} has {records} records{beside}: too few for {len(shards)} shards"
        )
    whole = replace(newest, shards=shards, held_out=held_out, records=records, indexes=pods)
    if pods > 1 and newest.format == "files":
        names = Names()
        for file in whole.files():
            names.add(name_in_shard(file.name))
    return create(whole, place / MANIFEST)


def complete_splits(folder: JobFolder) -> Iterator[DataManifest]:
    """Yields the manifest of every complete split, starting with the job's data."""
    seen: set[str] = set()
    for path in (folder.data_manifest, *durable.glob(folder.splits, f"*/{MANIFEST}")[::-1]):
        manifest = data_manifest.read_intact(path)
        if (
            manifest
            and manifest.split not in seen
            and (folder.splits / manifest.split / MANIFEST).exists()
        ):
            seen.add(manifest.split)
            yield manifest


def put(folder: JobFolder, manifest: DataManifest, job: str) -> DataManifest | None:
    """Makes the split the job's data: sets its manifest and the links for people. None if another
    data job removed the split.
    """
    manifest = replace(manifest, job=job or manifest.job)
    if data_manifest.read_intact(folder.data_manifest) != manifest:
        durable.write(folder.data_manifest, manifest.as_json())
    # Another node may have renamed the split, which this one remembers.
    durable.refresh(folder.splits)
    if not (folder.splits / manifest.split / MANIFEST).exists():
        return None
    # Another data job may be doing the same: the last one sets the links according to the manifest
    # that stays.
    while True:
        _set_links(folder, manifest)
        now = data_manifest.read_intact(folder.data_manifest)
        if now is None or now.split == manifest.split:
            return manifest
        manifest = now


def refuse_foreign(folder: JobFolder) -> None:
    """Raises `BadData` for data that a person put there: it may be the only copy."""
    for path in _places(folder):
        if path.parent.is_symlink() or (path.parent.exists() and not path.parent.is_dir()):
            path, foreign = path.parent, True
        else:
            foreign = (
                not path.is_symlink()
                and path.exists()
                and (not path.is_dir() or bool(durable.entries(path)))
            )
            if path.is_symlink():  # Checked last: another pod may be setting its links.
                foreign = "splits" not in path.readlink().parts
        if foreign:
            raise BadData(
                f"{path} was not made by a data job: move it away or delete it, then split "
                "again; nothing was changed"
            )


def sweep(folder: JobFolder, keep: str) -> None:
    """Removes splits that no run reads, and the leftovers of dead pods. Keeps the split `keep`."""
    gone = durable.glob(folder.splits, f"{GONE}*")
    current = data_manifest.read_intact(folder.data_manifest)
    for path in gone:
        newest = data_manifest.read_intact(path / MANIFEST)
        if newest and newest.split in (keep, current and current.split):
            # Another data job renamed this split before it became the job's data, and has not
            # checked it again yet.
            with contextlib.suppress(OSError):
                path.rename(folder.splits / newest.split)
        else:
            shutil.rmtree(path, ignore_errors=True)
    for entry in durable.entries(folder.splits):
        if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
            continue
        place = folder.splits / entry.name
        for path in durable.glob(place, "[0-9]*.json"):
            if manifest := data_manifest.read_intact(path):
                winners = {file.name.split("/")[2] for file in manifest.files()}
                for other in durable.glob(place, f"{path.stem}.*"):
                    if other.is_dir() and other.name not in winners:
                        remove(other, lambda _: True)
        if place.name != keep:
            remove(place, partial(_is_unneeded, folder, place.name))


def remove(path: Path, sure: Callable[[Path], bool]) -> None:
    """Renames and removes a folder, provided that `sure` holds both for `path` and, after the
    renaming, for the new path.
    """
    if not sure(path):
        return
    gone = path.with_name(f"{GONE}{os.urandom(4).hex()}")
    try:
        path.rename(gone)
    except FileNotFoundError:
        return
    if sure(gone):
        shutil.rmtree(gone, ignore_errors=True)
        return
    with contextlib.suppress(OSError):  # Another pod has made the folder again.
        gone.rename(path)


def _is_unneeded(folder: JobFolder, split: str, place: Path) -> bool:
    """Returns whether nobody needs `split`, whose files are now at `place`."""
    if (place / MANIFEST).exists():
        current = data_manifest.read_intact(folder.data_manifest)
        return current is not None and current.split not in ("", split) and _is_unused(folder)
    newest = 0.0
    for path in (place, *durable.walk(place)):
        with contextlib.suppress(FileNotFoundError):
            newest = max(newest, path.lstat().st_mtime)
    return _now(folder) - newest > SILENT * (24 if durable.glob(place, "[0-9]*.json") else 1)


def _is_unused(folder: JobFolder) -> bool:
    """Returns whether no run has begun to train here, or the run has been silent for longer than a
    lease lasts.
    """
    holder = lease.holder(folder.run_state)
    return (
        holder is None
        or not attempts.read(folder).is_in_progress(holder.run)
        or _now(folder) - holder.renewed > holder.expiry
    )


def _now(folder: JobFolder) -> float:
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder.splits) as probe:
        return os.fstat(probe.fileno()).st_mtime
    return time.time()  # The volume is full.


def _places(folder: JobFolder) -> list[Path]:
    # A pattern with `data` in it would miss broken links.
    return [
        *(path / "data" for path in durable.glob(folder.root, "[0-9]*") if path.name.isdigit()),
        folder.held_out,
    ]


def _set_links(folder: JobFolder, manifest: DataManifest) -> None:
    """Points the shards' links through `splits/current`, so that one rename switches them all."""
    names = {folder.shard(shard.index): str(shard.index) for shard in manifest.shards}
    if manifest.held_out:
        names[folder.held_out] = HELD_OUT
    durable.link(
        folder.splits / CURRENT, str(_make_view(folder, manifest).relative_to(folder.splits))
    )
    for path, name in names.items():
        path.parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            # An empty folder that a person made. A link that another pod has just set is not a
            # folder.
            path.rmdir()
        durable.link(path, f"../splits/{CURRENT}/{name}")
    for path in _places(folder):
        if path not in names and path.is_symlink():
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                path.parent.rmdir()


def _make_view(folder: JobFolder, manifest: DataManifest) -> Path:
    """Returns one folder with all shards: the only index's own, otherwise a folder of links."""
    if manifest.indexes == 1:
        return folder.root.joinpath(*manifest.files()[0].name.split("/")[:3])
    view = folder.splits / manifest.split / "shards"
    for file in manifest.files():
        path = view / file.name.split("/")[3] / name_in_shard(file.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.symlink_to(os.path.relpath(folder.root / file.name, path.parent))
    return view
