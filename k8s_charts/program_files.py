"""A small program of the user's own, read from a local folder to travel in a ConfigMap."""

from __future__ import annotations

import re
from pathlib import Path

from k8s_charts.errors import JobError

LIMIT = 1024 * 1024
"""Bytes: what an API server takes in one ConfigMap."""
_KEY = re.compile(r"(?!\.\.)[-._a-zA-Z0-9]{1,253}")


def read(folder: Path) -> dict[str, str]:
    """The folder's files by name, sorted. Raises JobError for what a ConfigMap cannot hold."""
    if not folder.is_dir():
        raise JobError(f"program.path is {folder}: there is no such folder")
    files: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        if path.name == "__pycache__":
            continue
        if not path.is_file():
            raise JobError(
                f"program.path has the folder {path}: a ConfigMap holds files only, use `from: image` for a larger program"
            )
        if not _KEY.fullmatch(path.name):
            raise JobError(f"program.path has the file {path.name!r}: letters, digits, '-', '_' and '.' are allowed in its name")
        try:
            files[path.name] = path.read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            raise JobError(f"program.path has the file {path}: only readable UTF-8 text can be in a ConfigMap") from None
    size = sum(len(name.encode()) + len(text.encode()) for name, text in files.items())
    if not files:
        raise JobError(f"program.path is {folder}: the folder is empty")
    if size > LIMIT:
        raise JobError(f"program.path is {folder}: its files have {size} bytes, a ConfigMap takes {LIMIT}; use `from: image`")
    return files
