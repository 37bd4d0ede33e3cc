"""Checks a trainer's shard before training starts, and copies it to local disk if requested.

Every file in the manifest has the bytes and the checksum stated there, or a `Failure` says what is
wrong. A volume without a manifest, filled by hand in one of the tutorials' two layouts, works with
a warning: nothing can be checked there.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import xxhash

from paddle_node.contract import ExitCode, Variable
from paddle_node.failure import BadData, Failure
from paddle_node.retry import disk_full, name_path
from paddle_node.volume import data_manifest, durable, passes
from paddle_node.volume.data_manifest import DataFile, DataManifest
from paddle_node.volume.job_folder import JobFolder

BLOCK = 1 << 20
_MORE, _NEVER = "give the pod more local storage, or ", "set data.stage to never"
WORKERS = 4
"""Files read in parallel: a network volume answers several requests at once faster than one after
another.
"""

Files = dict[str, tuple[Path, DataFile | None]]
"""Maps the name of each file in a shard to its path, and to its manifest entry if there is a
manifest.
"""


def stage(
    folder: JobFolder,
    trainer_id: int,
    trainers: int,
    report: Callable[[str], None] = print,
    local: Path | None = None,
    room: int | None = None,
) -> Path:
    """Returns where trainer `trainer_id` of `trainers` reads its shard: on the volume, or below
    `local`, a folder for `room` bytes, in a job folder's layout.

    Raises `Failure` if the shard does not match the manifest, or a requested copy does not fit;
    OSError.
    """
    stated = data_manifest.read(folder.data_manifest)
    if stated is not None and stated.shared:
        return _find_shared(folder, stated)
    path = folder.shard(trainer_id)
    if stated is None:
        path = _find_prepared(folder, trainer_id, report)
        files: Files = {name: (path / name, None) for name in sorted(_names(path))}
    else:
        if len(stated.shards) != trainers:
            raise BadData(
                f"{folder.data_manifest} lists {len(stated.shards)} shards, but this job has "
                f"{trainers} trainers: split the data again with as many shards as trainers"
            )
        files = {
            data_manifest.name_in_shard(file.name): (folder.root / file.name, file)
            for file in stated.shards[trainer_id].files
        }
        _refuse_extra(files)
    if local is not None:
        copy = JobFolder(local).shard(trainer_id)
        size = sum(entry.bytes if entry else file.stat().st_size for file, entry in files.values())
        if room is not None and size > room:
            raise Failure(
                ExitCode.VOLUME_FULL,
                f"the shard has {size} bytes and {Variable.STAGE_ROOM} is {room}: {_MORE}{_NEVER}",
            )
        _copy_missing(local, path, copy, files, report)
        return copy
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda file: verify_file(*file), files.values()))
    return path


def _find_shared(folder: JobFolder, manifest: DataManifest) -> Path:
    """Returns the copy that all jobs of the source share. Checks only names and sizes: the data job
    has read every byte.
    """
    place = folder.root.parent / manifest.shared
    for path, size in ((place / file.name, file.bytes) for file in manifest.files()):
        if not path.is_file() or (
            path.stat().st_size != size and durable.stat(path).st_size != size
        ):
            raise BadData(
                f"{path} is not there with the {size} bytes that the manifest says: once no job "
                f"reads {place}, remove it and run the data job again"
            )
    return place.joinpath(*manifest.files()[0].name.split("/")[:4])


def verify_file(path: Path, file: DataFile | None, origin: Path | None = None) -> None:
    """Raises `Failure` (BAD_DATA) unless `path`, perhaps a copy of `origin`, matches its manifest
    entry, if it has one.
    """
    if file is None:
        return
    shown = origin or path
    algorithm = file.checksum.partition(":")[0]
    if algorithm != data_manifest.CHECKSUM:
        raise BadData(
            f"{shown} has a checksum by {algorithm!r}: this image knows {data_manifest.CHECKSUM}"
        )
    with _name_unreadable(path):
        size = durable.stat(path).st_size
        if size != file.bytes:
            raise BadData(
                f"{shown} has {size} bytes, the manifest says {file.bytes}: split the data again"
            )
        if passes.checksum(path) != file.checksum:
            raise BadData(
                f"{shown} is damaged: its checksum is not the manifest's; split the data again"
            )


def _copy_missing(
    local: Path, path: Path, copy: Path, files: Files, report: Callable[[str], None]
) -> None:
    """Copies the files that are missing."""
    try:
        # Otherwise the trainer would also read what an earlier job or try left.
        copy.mkdir(parents=True, exist_ok=True)
        for name in _names(copy) - files.keys():
            (copy / name).unlink()
        with ThreadPoolExecutor(WORKERS) as pool:
            copied = sum(
                pool.map(lambda name: _copy(files[name][0], copy / name, files[name][1]), files)
            )
    except OSError as error:
        full = disk_full(error)
        if (
            not full
            and error.filename is not None
            and not Path(os.fsdecode(error.filename)).is_relative_to(local)
        ):
            raise  # The volume failed, not the local disk.
        sentence = (
            f"the shard cannot be copied to {local}: {error.strerror}; "
            f"{_MORE if full else ''}{_NEVER}"
        )
        raise Failure(ExitCode.VOLUME_FULL if full else 1, sentence) from None
    report(f"copied {copied} of {len(files)} files of {path} to {copy}")


def _find_prepared(folder: JobFolder, trainer_id: int, report: Callable[[str], None]) -> Path:
    if (link := folder.shard(trainer_id)).is_symlink() and "splits" in link.readlink().parts:
        # A data job set this link after writing its manifest, which is gone.
        raise BadData(
            f"{folder.data_manifest} is missing, though a data job has split here: run the data "
            "job again"
        )
    for path in (folder.shard(trainer_id), folder.older_shard(trainer_id)):
        if durable.entries(path):
            report(f"warning: {folder.data_manifest} is missing, so {path} is read unchecked")
            return path
    raise BadData(
        f"trainer {trainer_id} has no data: {folder.data_manifest} is missing, and neither "
        f"{folder.shard(trainer_id)} nor {folder.older_shard(trainer_id)} holds a file; run the "
        "data job first"
    )


def _names(path: Path) -> set[str]:
    try:
        return {file.relative_to(path).as_posix() for file in durable.walk(path) if file.is_file()}
    except PermissionError as error:
        raise BadData(f"{path} cannot be read: {error.strerror}") from None


def _refuse_extra(files: Files) -> None:
    listed = {file for file, _ in files.values()}
    for folder in sorted(
        {Path(str(file).removesuffix(f"/{name}")) for name, (file, _) in files.items()}
    ):
        if extra := sorted(name for name in _names(folder) if folder / name not in listed):
            raise BadData(
                f"{folder} holds {extra[0]}, which the manifest does not list: remove it, or "
                "split again"
            )


def _copy(source: Path, target: Path, file: DataFile | None) -> bool:
    """Copies and checks one file. Returns False if it was there already."""
    if target.exists() and _same(source, target, file):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    # A short name: the file's own may be as long as the file system allows.
    temporary = target.with_name(
        f".{os.getpid()}.{xxhash.xxh3_64(os.fsencode(target.name)).hexdigest()}.tmp"
    )
    try:
        with temporary.open("wb") as copy, _name_unreadable(source), source.open("rb") as stream:
            shutil.copyfileobj(stream, copy, BLOCK)
        verify_file(temporary, file, source)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _same(source: Path, target: Path, file: DataFile | None) -> bool:
    if file is None:
        there, here = source.stat(), target.stat()
        return there.st_size == here.st_size and there.st_mtime_ns <= here.st_mtime_ns
    try:
        verify_file(target, file)
    except Failure:
        return False
    return True


@contextlib.contextmanager
def _name_unreadable(path: Path) -> Iterator[None]:
    try:
        with name_path(path):
            yield
    except FileNotFoundError:
        raise BadData(
            f"{path} is missing, though the manifest lists it: split the data again"
        ) from None
    except PermissionError:
        raise BadData(
            f"{path} may not be read by uid {os.getuid()}: the volume's files belong to somebody "
            "else"
        ) from None
