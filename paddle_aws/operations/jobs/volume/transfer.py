"""Uploads a program or data to a job's folder on the volume, and downloads a saved pass.

Transfers only blocks that differ, and compares their checksums instead of reading them: an
interrupted transfer continues, and what is there already is not sent again. Each file appears whole
or not at all, with the content of its source.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO

from paddle_node.volume import passes as saved

from paddle_aws.operations.account.bucket_upload import put_in_parallel
from paddle_aws.operations.errors import Failed
from paddle_aws.operations.jobs.volume.access import BLOCK, Volume
from paddle_aws.operations.jobs.volume.server import WINDOW


def upload(
    volume: Volume, files: Sequence[tuple[Path, str]], folder: str, progress: Callable[[int], None]
) -> int:
    """Uploads each file to its name below `folder`, empty for the job's own; returns how many had
    to be sent.
    """
    there = {entry["name"]: int(entry["bytes"]) for entry in volume.files(folder)}
    stop = Event()

    def put(pair: tuple[Path, str]) -> bool:
        file, name = pair
        size, path = file.stat().st_size, f"{folder}/{name}".lstrip("/")
        if there.get(name) == size and _has_same_content(volume, path, file):
            progress(size)
            return False
        sent = 0
        with file.open("rb") as stream:
            for offset, block, theirs in _blocks(volume, path, stream, size, part=True):
                if stop.is_set():
                    return True
                if theirs != _sum(block):
                    volume.write(path, block, offset)
                sent += len(block)
                progress(len(block))
        if sent != size or not _has_same_content(volume, path, file, part=True):
            raise Failed(f"{file} changed on its way to the volume: run the same command again")
        volume.commit(path, size)
        return True

    # Transfers under way stop at their next block.
    return put_in_parallel(put, files, stop.set)


def _blocks(
    volume: Volume, path: str, stream: BinaryIO, size: int, part: bool = False
) -> Iterator[tuple[int, bytes, str]]:
    """Yields for each block of a local file, at least one: offset, bytes, and the volume's
    checksum, empty if it has none.

    `part`: compare with what has been sent of the file.
    """
    theirs: list[str] = []
    for number, offset in enumerate(range(0, max(size, 1), BLOCK)):
        if number % WINDOW == 0:
            try:
                # A log that grows meanwhile counts as it was when it was listed.
                theirs = volume.sums(path, offset, size, BLOCK, part=part)
            except FileNotFoundError:
                theirs = []
        stream.seek(offset)
        sums = theirs[number % WINDOW :] or [""]
        yield offset, stream.read(min(BLOCK, size - offset)), sums[0]


def _sum(block: bytes) -> str:
    return hashlib.blake2b(block).hexdigest()


def _has_same_content(volume: Volume, path: str, file: Path, part: bool = False) -> bool:
    """Whether a file of this size on the volume, or its part, has the local file's content."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        blocks = _blocks(volume, path, stream, size, part=part)
        return all(theirs == _sum(block) for _, block, theirs in blocks)


def download(
    volume: Volume,
    folder: str,
    files: list[dict[str, Any]],
    target: Path,
    progress: Callable[[int], None],
    *,
    sealed: bool,
) -> None:
    """Fetches `files` (name, bytes) of `folder` on the volume to `target`. Raises Failed if one is
    not what it has to be.

    `sealed`: the folder has a record of its files, with which they are compared at the end.
    """
    for entry in sorted(files, key=lambda entry: entry["name"] == saved.DONE):
        name, size = str(entry["name"]), int(entry["bytes"])
        place = target / name
        if not place.resolve().is_relative_to(target.resolve()):
            raise Failed(
                f"{folder} holds a file named {name}, which leads out of it: nothing of it is kept"
            )
        place.parent.mkdir(parents=True, exist_ok=True)
        path = f"{folder}/{name}"
        # A file that is here may be another run's, whatever its size.
        same_size = place.is_file() and place.stat().st_size == size
        if same_size and _has_same_content(volume, path, place):
            progress(size)
            continue
        part = place.with_name(f".{place.name}.part")
        _fetch(volume, path, part, size, progress)
        part.replace(place)
    try:
        if sealed:
            saved.verify(target)
    except saved.DamagedPass as error:
        # A damaged pass must not look complete.
        (target / saved.DONE).unlink(missing_ok=True)
        raise Failed(error.sentence) from None


def _fetch(
    volume: Volume, path: str, part: Path, size: int, progress: Callable[[int], None]
) -> None:
    with part.open("r+b" if part.is_file() else "w+b") as stream:
        for offset, block, theirs in _blocks(volume, path, stream, size):
            if theirs != _sum(block):
                block = volume.read(path, offset, min(BLOCK, size - offset))
                if theirs != _sum(block):
                    raise Failed(f"{path} changed while it was fetched: fetch it again")
                stream.seek(offset)
                stream.write(block)
            progress(len(block))
        stream.truncate(size)
