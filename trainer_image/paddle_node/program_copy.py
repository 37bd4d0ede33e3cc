"""The training program on its way from the image to the job's folder on the volume.

Promises: the folder on the volume is the whole program or the one that was there before, never a mixture; a copy
that is equal already is left alone; compiled leftovers (`__pycache__`) stay behind, and so do the `..` folders to which
the links of a mounted ConfigMap lead (the files are copied, not the links).
"""

from __future__ import annotations

import errno
import filecmp
import hashlib
import json
import os
import shutil
import uuid
from pathlib import Path

from paddle_node import durable
from paddle_node.contract import JobFolder, Variable
from paddle_node.failure import SettingError

LEFT_BEHIND = shutil.ignore_patterns("__pycache__", "*.pyc", "*.tmp", "..*")
TRIES = 3


def copy_program(source: Path, destination: Path) -> bool:
    """Makes `destination` equal to `source`; False when it was. Raises OSError from the volume.

    Raises `SettingError` when there is no such program in the image.
    """
    if not source.is_dir():
        there = ", ".join(sorted(path.name for path in source.parent.glob("*/"))) if source.parent.is_dir() else ""
        raise SettingError(
            f"{Variable.PROGRAM_FROM} names {source}, which this image does not hold (it holds: {there or 'none'})"
        )
    for _ in range(TRIES):
        if equal(source, destination):
            return False
        try:
            _exchange(source, destination)
        except FileNotFoundError:
            continue  # Another pod of the same data job does the same in this moment.
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            continue
        return True
    return not equal(source, destination)


def _exchange(source: Path, destination: Path) -> None:
    fresh = destination.with_name(f".{destination.name}.{uuid.uuid4().hex}.tmp")
    stale = destination.with_name(f".{destination.name}.{uuid.uuid4().hex}.old")
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        _copy(source, fresh)
        # A folder cannot be replaced by rename while it holds files: the old one steps aside for that moment.
        if destination.exists():
            destination.rename(stale)
        fresh.rename(destination)
        durable.sync(destination.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(stale, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copytree(source, target, ignore=LEFT_BEHIND, copy_function=_copy_durably)
    except shutil.Error as error:
        # copytree gathers what went wrong as texts; a full volume must be seen as what it is.
        if "No space left" in str(error) or "quota" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target)) from None
        raise OSError(errno.EIO, str(error.args[0][0][2]), str(target)) from None


def _copy_durably(source: str, target: str) -> None:
    """The data's manifest may be on the disk before a power cut: the program then must be there too."""
    shutil.copyfile(source, target)
    durable.sync(Path(target))


def equal(source: Path, destination: Path) -> bool:
    """Whether the files that count are the same, byte for byte."""
    names = _files(source)
    return names == _files(destination) and not any(filecmp.cmpfiles(source, destination, names, shallow=False)[1:])


def digest(folder: Path) -> str:
    """Names the whole program: every file that counts, by its name and its bytes. Raises OSError."""
    whole = hashlib.sha256()
    for name in _files(folder):
        content = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        whole.update(f"{name}\0{content}\n".encode(errors="surrogateescape"))
    return whole.hexdigest()


def find(folder: JobFolder, wanted: str) -> Path | None:
    """The copied program of that digest."""
    try:
        named = json.loads((folder.programs / f"{wanted}.json").read_text())["folder"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return folder.programs / str(named)


def _files(folder: Path) -> list[str]:
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        hidden = any(part == "__pycache__" or part.startswith("..") for part in name.parts)
        if path.is_file() and not hidden and path.suffix not in (".pyc", ".tmp"):
            found.append(str(name))
    return found
