"""A small program of the user's own, read from a local folder to travel in a ConfigMap."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from k8s_charts.errors import JobError

LIMIT = 250_000
"""Bytes as JSON. `kubectl apply` keeps a copy of the object in an annotation, and those take 262,144; a ConfigMap alone 1 MiB."""
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
    if not files:
        raise JobError(f"program.path is {folder}: the folder is empty")
    if (found := size(files)) > LIMIT:
        raise JobError(f"program.path is {folder}: its files have {found} bytes as JSON, {LIMIT} are allowed; use `from: image`")
    return files


def size(data: Mapping[str, str]) -> int:
    """Bytes of a ConfigMap's data as JSON."""
    # kubectl's copy is written by Go, which escapes these three as well.
    return len(json.dumps(dict(data))) + 5 * sum(text.count(sign) for text in data.values() for sign in "<>&")
