"""One saved pass off the volume: in blocks, with progress, taken up where it was interrupted, every byte verified.

Promises: a downloaded pass is complete and has the checksums that were taken when it was saved, or the command fails;
a file that is there already and is right is not fetched again; `done` comes last, as on the volume.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle_node import passes as saved

from operations.errors import Failed
from operations.volume_access import BLOCK, VolumeAccess


def download(
    volume: VolumeAccess, folder: str, files: list[dict[str, Any]], target: Path, progress: Callable[[int], None]
) -> Path:
    """Fetches `files` (name, bytes) of `folder` on the volume to `target`; raises Failed where a checksum is wrong."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in sorted(files, key=lambda entry: entry["name"] == saved.DONE):
        name, size = str(entry["name"]), int(entry["bytes"])
        place = target / name
        if not place.resolve().is_relative_to(target.resolve()):
            raise Failed(f"{folder} holds a file named {name}, which leads out of it: nothing of it is kept")
        place.parent.mkdir(parents=True, exist_ok=True)
        # The record is always the volume's: one that lies here may be of another run, and right for its files.
        if name != saved.DONE and place.is_file() and place.stat().st_size == size:
            progress(size)
            continue
        _file(volume, f"{folder}/{name}", place, size, progress)
    try:
        saved.verify(target)
    except saved.DamagedPass as error:
        # What is wrong must be fetched anew next time, not taken for done.
        (target / saved.DONE).unlink(missing_ok=True)
        raise Failed(f"{error.sentence}; `--fresh` fetches it anew") from None
    return target


def _file(volume: VolumeAccess, path: str, place: Path, size: int, progress: Callable[[int], None]) -> None:
    part = place.with_name(f".{place.name}.part")
    offset = part.stat().st_size if part.is_file() and part.stat().st_size <= size else 0
    progress(offset)
    with part.open("r+b" if offset else "wb") as stream:
        stream.seek(offset)
        while offset < size:
            block = volume.read(path, offset, min(BLOCK, size - offset))
            if not block:
                raise Failed(f"{path} became shorter while it was read")
            stream.write(block)
            offset += len(block)
            progress(len(block))
    part.replace(place)
