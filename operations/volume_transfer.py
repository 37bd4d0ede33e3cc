"""A program or data on its way to a job's folder on the volume, and a saved pass on its way home.

Promises: each file is taken up where it was interrupted, and appears whole or not at all; what lies on the volume with the
same content is not sent again, found out by checksums and not by reading it back; a downloaded pass is complete and has
the checksums that were taken when it was saved, or the command fails.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from paddle_node.training import passes as saved

from operations.backend import Volume
from operations.bucket_upload import side_by_side
from operations.errors import Failed
from operations.volume_access import BLOCK, Missing, VolumeAccess

SUMMED = 64 << 20
"""Bytes that are compared at once: some tenths of a second of the helper pod's work."""


def upload(volume: VolumeAccess, files: Sequence[tuple[Path, str]], folder: str, progress: Callable[[int], None]) -> int:
    """Brings each file to its name below `folder`, empty for the job's own; returns how many had to be sent."""
    # A single file is asked for by its name: the job's folder may hold thousands of others.
    there = {entry["name"]: int(entry["bytes"]) for entry in volume.files(folder)} if folder else None
    base, stop = f"{folder}/" if folder else "", Event()

    def put(one: tuple[Path, str]) -> bool:
        file, name = one
        size = file.stat().st_size
        part = (Path(name).parent / f".{Path(name).name}.part").as_posix()
        if (there is None or there.get(name) == size) and _equal(volume, base + name, file, size) == (size, size):
            progress(size)
            return False
        offset, _ = (0, 0) if there is not None and part not in there else _equal(volume, base + part, file, size)
        progress(offset)
        with file.open("rb") as stream:
            stream.seek(offset)
            while not stop.is_set():
                block = stream.read(min(BLOCK, size - offset))
                if not block and offset < size:
                    raise Failed(f"{file} became shorter while it was read")
                last = offset + len(block) >= size
                volume.write(base + name, block, offset, last)
                offset += len(block)
                progress(len(block))
                if last:
                    break
        return True

    return sum(side_by_side(put, files, stop))


def _equal(volume: Volume, place: str, file: Path, size: int) -> tuple[int, int]:
    """How many bytes from its beginning a file on the volume has in common with ours, and how many it has; -1: is not there."""
    same, length = 0, -1
    try:
        with file.open("rb") as stream:
            while True:
                theirs, count, length = volume.sum(place, same, min(SUMMED, size - same))
                if count == 0 or theirs != hashlib.blake2b(stream.read(count)).hexdigest():
                    break
                same += count
                if same == size:
                    break
    except Missing:
        return 0, -1
    return same, length


def download(
    volume: Volume, folder: str, files: list[dict[str, Any]], target: Path, progress: Callable[[int], None], *, sealed: bool
) -> None:
    """Fetches `files` (name, bytes) of `folder` on the volume to `target`; raises Failed where one is not what it has to be.

    `sealed`: the folder has a record of its files. Of others each is compared with the volume's once it is here.
    """
    for entry in sorted(files, key=lambda entry: entry["name"] == saved.DONE):
        name, size = str(entry["name"]), int(entry["bytes"])
        place = target / name
        if not place.resolve().is_relative_to(target.resolve()):
            raise Failed(f"{folder} holds a file named {name}, which leads out of it: nothing of it is kept")
        place.parent.mkdir(parents=True, exist_ok=True)
        path = f"{folder}/{name}"
        # What lies here may be another run's, whatever its size.
        if place.is_file() and place.stat().st_size == size and _equal(volume, path, place, size) == (size, size):
            progress(size)
            continue
        _file(volume, path, place, size, progress)
        if not sealed and _equal(volume, path, place, size) != (size, size):
            raise Failed(f"{path} changed while it was fetched: fetch it again")
    try:
        if sealed:
            saved.verify(target)
    except saved.DamagedPass as error:
        # What is wrong must not be taken for done.
        (target / saved.DONE).unlink(missing_ok=True)
        raise Failed(error.sentence) from None


def _file(volume: Volume, path: str, place: Path, size: int, progress: Callable[[int], None]) -> None:
    part = place.with_name(f".{place.name}.part")
    offset = min(_equal(volume, path, part, part.stat().st_size)[0], size) if part.is_file() else 0
    progress(offset)
    with part.open("r+b" if part.is_file() else "wb") as stream:
        stream.seek(offset)
        stream.truncate()
        while offset < size:
            block = volume.read(path, offset, min(BLOCK, size - offset))
            if not block:
                raise Failed(f"{path} became shorter while it was read")
            stream.write(block)
            offset += len(block)
            progress(len(block))
    part.replace(place)
