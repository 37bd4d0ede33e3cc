"""A saved pass on the volume: complete, or as if it were not there.

Promises: `done` is written last, after every file of the pass and its folder were flushed to the volume, so a
pass with `done` has all its bytes; a pass that lacks it, or a file that its list names, is never loaded and is
swept away before the next attempt; `verify` finds a single changed byte. Standard library only (xxhash where a
checksum is really computed), because the supervisor asks it too.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paddle_node import durable
from paddle_node.contract import ExitCode, JobFolder
from paddle_node.failure import Failure

FILES = "files.json"
"""The pass's list of files: [{name, bytes, checksum}], in order of name."""
DONE = "done"
ALGORITHM = "xxh3_128"


class DamagedPass(Failure):
    """A pass that says it is complete and is not: names the file and what is wrong with it."""

    def __init__(self, sentence: str) -> None:
        super().__init__(ExitCode.BAD_DATA, sentence)


def newest_complete(folder: JobFolder) -> int | None:
    """The number of the newest pass that has all its files in their full size; None where there is none.

    Checksums are left to `verify`: a supervisor asks this at each start of an attempt.
    """
    return max((number for number in numbers(folder) if fault(folder.pass_dir(number)) is None), default=None)


def numbers(folder: JobFolder) -> list[int]:
    """Every pass folder, complete or not, oldest first."""
    if not folder.output.is_dir():
        return []
    found = (re.fullmatch(r"pass-(\d{5})", entry.name) for entry in folder.output.iterdir())
    return sorted(int(match[1]) for match in found if match)


def discard_incomplete(folder: JobFolder) -> list[int]:
    """Removes what an ended attempt left half saved; returns the numbers. Call it while no process saves."""
    broken = [number for number in numbers(folder) if not folder.done(number).is_file()]
    for number in broken:
        shutil.rmtree(folder.pass_dir(number))
    return broken


def keep_newest(folder: JobFolder, count: int) -> list[int]:
    """Removes all complete passes but the `count` newest (0 keeps all); returns the numbers removed.

    `done` goes first: a pass half removed must not look complete.
    """
    complete = [number for number in numbers(folder) if folder.done(number).is_file()]
    surplus = complete[:-count] if count else []
    for number in surplus:
        folder.done(number).unlink()
        shutil.rmtree(folder.pass_dir(number))
    return surplus


def seal(folder: JobFolder, number: int, facts: dict[str, Any]) -> None:
    """Makes what lies in the pass's folder a complete pass; `facts` (attempt, run, ...) are kept in `done`."""
    seal_directory(folder.pass_dir(number), {"pass": number, **facts})


def seal_directory(directory: Path, facts: dict[str, Any]) -> None:
    """Flush, list with checksums, flush, `done`, flush."""
    files = []
    for file in _files(directory):
        durable.sync(file)
        files.append({"name": _name(directory, file), "bytes": file.stat().st_size, "checksum": checksum(file)})
    durable.write(directory / FILES, json.dumps(files, indent=1) + "\n")
    for child in sorted({file.parent for file in _files(directory)}, reverse=True):
        durable.sync(child)
    durable.write(directory / DONE, json.dumps({**facts, "files": checksum(directory / FILES)}) + "\n")
    durable.sync(directory.parent)


def verify(directory: Path) -> None:
    """Reads every byte of a pass against its list. Raises `DamagedPass` with a sentence."""
    found = fault(directory)
    if found is None and _ours(directory):
        if json.loads((directory / DONE).read_text())["files"] != checksum(directory / FILES):
            found = f"its list {FILES} was changed after it was saved"
        else:
            changed = (f["name"] for f in _listed(directory) if checksum(directory / f["name"]) != f["checksum"])
            name = next(changed, None)
            found = f"{name} was changed after it was saved" if name else None
    if found is not None:
        raise DamagedPass(f"{directory} cannot be loaded: {found}; restore the file, or remove the whole pass")


def fault(directory: Path) -> str | None:
    """Why a pass is not complete as far as names and sizes tell; None: it is."""
    if not (directory / DONE).is_file():
        return f"it has no {DONE}: it was not saved to the end"
    if not _ours(directory):
        return None
    try:
        listed = _listed(directory)
    except (OSError, ValueError):
        return f"its list {FILES} is missing or cannot be read"
    for entry in listed:
        try:
            size = (directory / entry["name"]).stat().st_size
        except OSError:
            return f"{entry['name']} is missing"
        if size != entry["bytes"]:
            return f"{entry['name']} has {size} bytes, and {entry['bytes']} were saved"
    return None


def checksum(file: Path) -> str:
    """`<algorithm>:<hex>` of a file's bytes."""
    import xxhash

    state = xxhash.xxh3_128()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            state.update(block)
    return f"{ALGORITHM}:{state.hexdigest()}"


def _ours(directory: Path) -> bool:
    """Whether `done` is of this module. Paddle 0.x writes an empty one, last of all, and no list."""
    return (directory / DONE).stat().st_size > 0


def _listed(directory: Path) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = json.loads((directory / FILES).read_text())
    return files


def _files(directory: Path) -> Iterator[Path]:
    return (file for file in sorted(directory.rglob("*")) if file.is_file() and file.name not in (FILES, DONE))


def _name(directory: Path, file: Path) -> str:
    return file.relative_to(directory).as_posix()
