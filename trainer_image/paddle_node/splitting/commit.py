"""Puts a split in place: the one moment in which the old data goes and the new data comes.

Promises: until every new file is on the disk, nothing of the old split is touched; from then on only renames happen, in
an order that an interruption anywhere leaves either without a manifest (and the next run finishes it) or complete;
shards that are no longer wanted are gone before the manifest appears.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from paddle_node import data_manifest
from paddle_node.contract import ExitCode, JobFolder
from paddle_node.data_manifest import DataManifest
from paddle_node.failure import Failure
from paddle_node.splitting.shares import HELD_OUT

STAGED = "data-manifest.json"


def stage(work: Path, manifest: DataManifest) -> None:
    """The manifest as it will be, next to the new files: whoever finds it can finish the commit without more room."""
    if (work / STAGED).exists():
        return
    for path, _, _ in os.walk(work / "parts"):
        # The files were synced under their temporary names. A folder that is gone was put in place by another pod.
        with contextlib.suppress(FileNotFoundError):
            data_manifest.sync_folder(Path(path))
    data_manifest.write(manifest, work / STAGED)


def commit(folder: JobFolder, work: Path) -> None:
    """Exchanges the data. May be interrupted and called again, also by another pod at the same time."""
    old = work / "old"
    old.mkdir(exist_ok=True)
    staged = data_manifest.read(work / STAGED)
    if staged is None:
        return
    folder.data_manifest.unlink(missing_ok=True)
    data_manifest.sync_folder(folder.root)
    for path in folder.root.glob("[0-9]*/data"):
        if path.parent.name.isdigit():
            _set_aside(
                path, work / "parts" / path.parent.name, old / path.parent.name, int(path.parent.name) < len(staged.shards)
            )
    _set_aside(folder.held_out, work / "parts" / HELD_OUT, old / HELD_OUT, bool(staged.held_out))
    for shard in staged.shards:
        _put(work / "parts" / str(shard.index), folder.shard(shard.index))
    if staged.held_out:
        _put(work / "parts" / HELD_OUT, folder.held_out)
    try:
        (work / STAGED).replace(folder.data_manifest)
    except FileNotFoundError:
        return  # Another pod was faster.
    data_manifest.sync_folder(folder.root)


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
                ExitCode.BAD_DATA, f"{path} holds files that no {STAGED} lists: move them away or delete them, then split again"
            )


def work_root(folder: JobFolder) -> Path:
    """Where splits keep their work, on the same file system as the shards."""
    return folder.root / ".split"


def _set_aside(path: Path, fresh: Path, old: Path, wanted: bool) -> None:
    """Moves old data away, but not what this commit has already put there."""
    if wanted and not fresh.exists():
        return
    try:
        path.rename(old)
    except FileNotFoundError:
        return
    data_manifest.sync_folder(path.parent)


def _put(fresh: Path, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    try:
        fresh.rename(path)
    except FileNotFoundError:
        return  # Put there before the interruption.
    data_manifest.sync_folder(path.parent)
