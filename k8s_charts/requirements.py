"""Python packages that a program needs beside the image's. pip decides whether they fit: the image's versions are constraints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from k8s_charts.errors import JobError

LOCKS = {"2.6": "trainer_image/requirements.lock", "3.3": "trainer_image/requirements-collective.lock"}
"""Which lock file, below the project, has a Paddle."""


def read(given: str | Iterable[str], folder: Path | None) -> tuple[str, ...]:
    """The requirements of a list, or of a file in the program's folder. Raises JobError."""
    if isinstance(given, str):
        if folder is None or not (folder / given).resolve().is_relative_to(folder.resolve()):
            raise JobError(f"program.requirements is {given}: a list, or a file in the folder of a local program, is allowed")
        try:
            text = (folder / given).read_text(encoding="utf-8-sig").replace("\\\n", " ")
        except (OSError, UnicodeDecodeError):
            raise JobError(f"program.requirements is {given}: the program's folder has no such text file") from None
        given = [re.sub(r"(^|\s)#.*", "", line) for line in text.splitlines()]
    lines = tuple(line.strip() for line in given if line.strip())
    for line in lines:
        if not re.match(r"[A-Za-z0-9][\w.-]*\s*($|[\[(<>=!~;@])", line) or "\n" in line:
            raise JobError(f"program.requirements has {line!r}: a package and its versions are allowed, such as six>=1.16")
        if re.match("paddlepaddle[-_.]", line, re.IGNORECASE):
            raise JobError(f"program.requirements has {line}: the image brings Paddle itself, leave it out")
    return lines
