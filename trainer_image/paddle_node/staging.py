"""A trainer's shard, made sure of before a single record is trained on.

Promises: `stage` returns the folder to read only when the number of shards is this job's number of trainers and every
file has the bytes and the checksum that the manifest states; else a `Failure` (BAD_DATA) says in one sentence
what is wrong. A volume without a manifest, filled by hand in one of the tutorials' two layouts, works with a warning:
nothing can be checked there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import xxhash

from paddle_node import data_manifest
from paddle_node.contract import ExitCode, JobFolder
from paddle_node.data_manifest import DataFile, DataManifest
from paddle_node.failure import Failure

BLOCK = 1 << 20


def stage(folder: JobFolder, trainer_id: int, trainers: int, report: Callable[[str], None] = print) -> Path:
    """Where trainer `trainer_id` of `trainers` reads its shard.

    Raises `Failure` with BAD_DATA when the shard is not exactly what the manifest says, or is not there at all.
    """
    manifest = data_manifest.read(folder.data_manifest)
    if manifest is None:
        return _by_hand(folder, trainer_id, report)
    shard = _own_shard(folder, manifest, trainer_id, trainers)
    path = folder.shard(trainer_id)
    _verify(path, shard)
    return path


def _by_hand(folder: JobFolder, trainer_id: int, report: Callable[[str], None]) -> Path:
    for path in (folder.shard(trainer_id), folder.older_shard(trainer_id)):
        if path.is_dir() and any(path.iterdir()):
            report(f"warning: {folder.data_manifest} is missing, so {path} is read unchecked")
            return path
    raise Failure(
        ExitCode.BAD_DATA,
        f"trainer {trainer_id} has no data: {folder.data_manifest} is missing, and neither {folder.shard(trainer_id)} "
        f"nor {folder.older_shard(trainer_id)} holds a file; run the data job first",
    )


def _own_shard(folder: JobFolder, manifest: DataManifest, trainer_id: int, trainers: int) -> tuple[DataFile, ...]:
    if len(manifest.shards) != trainers:
        raise Failure(
            ExitCode.BAD_DATA,
            f"{folder.data_manifest} lists {len(manifest.shards)} shards, but this job has {trainers} trainers: "
            "split the data again with as many shards as trainers",
        )
    return manifest.shards[trainer_id].files


def _verify(path: Path, files: tuple[DataFile, ...]) -> None:
    try:
        there = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    except OSError as error:
        raise Failure(ExitCode.BAD_DATA, f"{path} cannot be read: {error.strerror}") from None
    extra = there - {file.name for file in files}
    if extra:
        raise Failure(
            ExitCode.BAD_DATA, f"{path} holds {sorted(extra)[0]}, which the manifest does not list: remove it or split again"
        )
    for file in files:
        verify_file(path / file.name, file)


def verify_file(path: Path, file: DataFile) -> None:
    """Raises `Failure` (BAD_DATA) unless `path` is what the manifest says of it."""
    algorithm, _, expected = file.checksum.partition(":")
    if algorithm != data_manifest.CHECKSUM:
        raise Failure(ExitCode.BAD_DATA, f"{path} has a checksum by {algorithm!r}: this image knows {data_manifest.CHECKSUM}")
    hasher = xxhash.xxh3_128()
    size = 0
    try:
        with path.open("rb", buffering=0) as stream:
            while block := stream.read(BLOCK):
                hasher.update(block)
                size += len(block)
    except FileNotFoundError:
        raise Failure(ExitCode.BAD_DATA, f"{path} is missing, though the manifest lists it: split the data again") from None
    except OSError as error:
        raise Failure(ExitCode.BAD_DATA, f"{path} cannot be read: {error.strerror}") from None
    if size != file.bytes:
        raise Failure(ExitCode.BAD_DATA, f"{path} has {size} bytes, the manifest says {file.bytes}: split the data again")
    if hasher.hexdigest() != expected:
        raise Failure(ExitCode.BAD_DATA, f"{path} is damaged: its checksum is not the manifest's; split the data again")
