"""Puts a split in place: the one moment in which the old data goes and the new data comes.

Promises: until every new file is on the disk, nothing of the old split is touched; from then on only renames happen, in
an order that an interruption anywhere leaves either without a manifest (and the next run finishes it) or complete;
shards that are no longer wanted are gone before the manifest appears.

The new files and their manifest leave `parts`, to which the steps write, by one rename to `whole`, to which none does: a pod
that was silent for so long that its step was done by another may wake and write at any moment, but never into that.
`whole` is never empty (first the manifest is in it, then `old` too), so no later `parts` can be renamed over it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from paddle_node import attempts, contract, data_manifest, durable, lease
from paddle_node.contract import ExitCode, JobFolder
from paddle_node.data_manifest import DataManifest
from paddle_node.failure import Failure
from paddle_node.splitting import sign_of_life
from paddle_node.splitting.shares import HELD_OUT

WHOLE = "whole"
STAGED = f"{WHOLE}/data-manifest.json"
"""Below a folder of work: what makes its files a whole split, which only waits to be put in place."""


def stage(work: Path, manifest: DataManifest) -> None:
    """The new files and the manifest as it will be, together: whoever finds them can finish the commit without more room.

    Raises `Failure` where files are missing, as after a power cut that kept the steps' results: the next run does them again.
    """
    if (work / WHOLE).exists():
        return
    parts = work / "parts"
    for path, _, _ in os.walk(parts):
        # The files were synced under their temporary names. A folder that is gone was moved by another pod.
        with contextlib.suppress(FileNotFoundError):
            durable.sync(Path(path))
    named = [(str(shard.index), shard.files) for shard in manifest.shards]
    for name, files in [*named, (HELD_OUT, manifest.held_out)]:
        for file in files:
            if _size(parts / name / file.name) == file.bytes:
                continue
            if (work / WHOLE).exists() or not work.exists():
                return  # Another pod was faster.
            shutil.rmtree(work, ignore_errors=True)
            raise Failure(1, f"{parts / name / file.name} is not what was written there: run the split again, it begins anew")
    data_manifest.write(manifest, parts / Path(STAGED).name)
    try:
        parts.rename(work / WHOLE)
    except OSError:
        if not (work / WHOLE).exists():
            raise
    durable.sync(work)


def commit(folder: JobFolder, work: Path) -> None:
    """Exchanges the data. May be interrupted and called again, also by another pod at the same time."""
    staged = data_manifest.read(work / STAGED)
    if staged is None:
        return
    whole = work / WHOLE
    old = whole / "old"
    old.mkdir(exist_ok=True)
    folder.data_manifest.unlink(missing_ok=True)
    durable.sync(folder.root)
    for path in folder.root.glob("[0-9]*/data"):
        if path.parent.name.isdigit():
            _set_aside(path, whole / path.parent.name, old / path.parent.name, int(path.parent.name) < len(staged.shards))
    _set_aside(folder.held_out, whole / HELD_OUT, old / HELD_OUT, bool(staged.held_out))
    for shard in staged.shards:
        _put(whole / str(shard.index), folder.shard(shard.index))
    if staged.held_out:
        _put(whole / HELD_OUT, folder.held_out)
    try:
        (work / STAGED).replace(folder.data_manifest)
    except FileNotFoundError:
        return  # Another pod was faster.
    durable.sync(folder.root)


def sweep(folder: JobFolder) -> None:
    """Removes the folders of work and those of shards that are gone."""
    shutil.rmtree(work_root(folder), ignore_errors=True)
    for path in (*folder.root.glob("[0-9]*"), folder.held_out.parent):
        if path.is_dir() and (path.name.isdigit() or path == folder.held_out.parent) and not any(path.iterdir()):
            path.rmdir()


def refuse_foreign(folder: JobFolder) -> None:
    """Raises `Failure` (BAD_DATA) when shards lie there that no split of ours has written: they may be a person's only copy."""
    if folder.data_manifest.exists() or any(work_root(folder).glob(f"*/{STAGED}")):
        return
    for path in folder.root.glob("[0-9]*/data"):
        if path.parent.name.isdigit() and any(path.iterdir()):
            raise Failure(
                ExitCode.BAD_DATA,
                f"{path} holds files that no {folder.data_manifest.name} lists: move them away or delete them, then split again",
            )


def refuse_used(folder: JobFolder, say: Callable[[str], None]) -> None:
    """Raises `Failure` (FOLDER_IN_USE) when a run trains on what is about to be exchanged: its next pass would see other data.

    A run that has begun nothing waits for its data and is no such run; one that was killed is outwaited.
    """
    state = folder.run_state
    holder = lease.holder(state)
    if holder is None or not attempts.begun(folder, holder.run):
        return
    if sign_of_life.awaited(
        lambda: now.beat if (now := lease.holder(state)) is not None and now.run == holder.run else 0.0,
        contract.LEASE,
        folder.root,
        lambda: say(f"run {holder.run} was training in {folder.root}: waiting {contract.LEASE:.0f} s for a sign of life"),
    ):
        raise Failure(
            ExitCode.FOLDER_IN_USE,
            f"run {holder.run} trains in {folder.root}, whose shards and program are not exchanged under it: "
            "wait until that run has ended, or end it; all is as it was",
        )


def work_root(folder: JobFolder) -> Path:
    """Where splits keep their work, on the same file system as the shards."""
    return folder.root / ".split"


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _set_aside(path: Path, fresh: Path, old: Path, wanted: bool) -> None:
    """Moves old data away, but not what this commit has already put there."""
    if wanted and not fresh.exists():
        return
    try:
        path.rename(old)
    except FileNotFoundError:
        return
    durable.sync(path.parent)


def _put(fresh: Path, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    try:
        fresh.rename(path)
    except FileNotFoundError:
        return  # Put there before the interruption.
    durable.sync(path.parent)
