"""A trainer's metrics: one line of JSON per pass on the volume, and lines in its log.

A line that a full volume truncated spoils no other line.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddle_node.volume import durable

_LINE = re.compile(
    r"(?:\[trainer \d+\] )?(pass=\d{1,9}(?: [a-z_]+=-?\d{1,18}(?:\.\d+)?(?:e[+-]?\d\d?)?)+)"
)


def format_line(facts: Mapping[str, Any]) -> str:
    """Returns facts of a pass as a trainer prints them: `pass=0 attempt=1 ...`."""
    return " ".join(f"{name}={value}" for name, value in facts.items())


def parse_line(line: str) -> dict[str, float]:
    """Returns the facts in a log line that `format_line` made; empty for any other line."""
    match = _LINE.fullmatch(line)
    words = (word.partition("=") for word in match[1].split()) if match else ()
    return {name: float(value) for name, _, value in words}


def append(file: Path, metrics: Mapping[str, Any], sync: bool = True) -> None:
    """Appends a line. With `sync`, the line is on disk when this returns. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(dict(metrics)).encode() + b"\n"
    with contextlib.suppress(FileNotFoundError), file.open("rb") as written:
        if written.seek(0, os.SEEK_END) > 0:
            written.seek(-1, os.SEEK_END)
            line = line if written.read(1) == b"\n" else b"\n" + line
    with durable.Writer(file, os.O_CREAT | os.O_APPEND) as stream:
        stream.write(line)
        if sync:
            stream.sync()


def read_recorded(file: Path) -> set[tuple[int, int]]:
    """Returns the number and the attempt of each pass that has a line."""
    passes: set[tuple[int, int]] = set()
    for line in file.read_bytes().splitlines() if file.is_file() else ():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            passes.add((int(entry["pass"]), int(entry["attempt"])))
    return passes
