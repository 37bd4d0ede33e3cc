"""The training program on its way from the image to the job's folder on the volume.

Promises: the folder on the volume is the whole program or the one that was there before, never a mixture; a copy
that is equal already is left alone; compiled leftovers (`__pycache__`) stay behind.
"""

from __future__ import annotations

import filecmp
import os
import shutil
from pathlib import Path

from paddle_node.contract import Variable
from paddle_node.failure import SettingError

LEFT_BEHIND = shutil.ignore_patterns("__pycache__", "*.pyc", "*.tmp")


def copy_program(source: Path, destination: Path) -> bool:
    """Makes `destination` equal to `source`; False when it was. Raises OSError from the volume.

    Raises `SettingError` when there is no such program in the image.
    """
    if not source.is_dir():
        there = ", ".join(sorted(path.name for path in source.parent.glob("*/"))) if source.parent.is_dir() else ""
        raise SettingError(
            f"{Variable.PROGRAM_FROM} names {source}, which this image does not hold (it holds: {there or 'none'})"
        )
    if _equal(source, destination):
        return False
    fresh = destination.with_name(f".{destination.name}.{os.getpid()}.tmp")
    stale = destination.with_name(f".{destination.name}.{os.getpid()}.old")
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copytree(source, fresh, ignore=LEFT_BEHIND, copy_function=shutil.copyfile)
        # A folder cannot be replaced by rename while it holds files: the old one steps aside for that moment.
        if destination.exists():
            destination.rename(stale)
        fresh.rename(destination)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(stale, ignore_errors=True)
    return True


def _equal(source: Path, destination: Path) -> bool:
    names = _files(source)
    return names == _files(destination) and not any(filecmp.cmpfiles(source, destination, names, shallow=False)[1:])


def _files(folder: Path) -> list[str]:
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".pyc", ".tmp"):
            found.append(str(path.relative_to(folder)))
    return found
