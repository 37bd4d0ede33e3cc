"""A program or data on its way to a job's folder on the volume: several files at once, each taken up where it was interrupted.

Promises: what lies there with the same content is not sent again, found out by checksums and not by reading it back; a file
appears whole or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

from operations.errors import Failed
from operations.side_by_side import side_by_side
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


def _equal(volume: VolumeAccess, place: str, file: Path, size: int) -> tuple[int, int]:
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
