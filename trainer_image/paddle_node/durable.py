"""A small file on the volume that a reader sees whole or not at all, even after a loss of power."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, content: str | bytes) -> None:
    """Temporary file, fsync, rename, fsync of the folder, which is made if missing. Raises OSError (a full volume, for one)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not by process number: pods that share a volume have equal ones.
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def link(path: Path, target: str) -> None:
    """Makes `path` a symbolic link to `target`, at once where it was another one. Raises OSError where it is a folder."""
    if path.is_symlink() and str(path.readlink()) == target:
        return
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    temporary.symlink_to(target)
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """To the volume, not only to this machine's memory: a file, or a folder, whose names are bytes like others."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
