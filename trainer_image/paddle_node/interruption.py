"""A pass that SIGTERM cut short, kept so that the next run goes on in the middle of it.

Promises: it lies beside the passes, is sealed like one, and is never taken for one; it is used only by a run that
would read the same records in the same order (same data, seed and number of trainers) right behind the same pass;
otherwise the pass begins anew, which loses time and no record.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paddle_node import data_manifest, durable, passes
from paddle_node.contract import JobFolder

FILE = "position.json"


@dataclass(frozen=True)
class Position:
    """How far one trainer is in a pass."""

    read: int = 0
    trained: int = 0
    total: float = 0.0
    """Sum of the losses of the trained records."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of this process, all threads: far below `seconds` on a machine that others use too."""


@dataclass(frozen=True)
class Interruption:
    """What SIGTERM left behind."""

    pass_number: int
    order: str
    """Digest of all that decides which records come when."""
    positions: tuple[Position, ...]
    """By trainer id."""


def directory(folder: JobFolder) -> Path:
    """Where it lies; at most one at a time."""
    return folder.output / "interrupted"


def order(folder: JobFolder, seed: int, trainers: int) -> str:
    """Equal for runs that read the same records in the same order."""
    data = data_manifest.content(folder.data_manifest)
    return hashlib.sha256(json.dumps([seed, trainers]).encode() + data).hexdigest()


def write(folder: JobFolder, interruption: Interruption) -> None:
    """Beside the parameters that lie there already; then seals the folder."""
    place = directory(folder)
    durable.write(place / FILE, json.dumps(asdict(interruption)) + "\n")
    passes.seal_directory(place, {"interrupted pass": interruption.pass_number})


def read(folder: JobFolder, resume_pass: int | None, expected_order: str) -> Interruption | None:
    """The interruption that this run can go on from, if there is one. Every process of the job finds the same."""
    place = directory(folder)
    # An NFS client remembers for up to a minute which names a folder does not have, unless the folder is opened.
    present = folder.output.is_dir() and place in folder.output.iterdir() and any(place.iterdir())
    if not present or passes.fault(place) is not None:
        return None
    raw: dict[str, Any] = json.loads((place / FILE).read_text())
    found = Interruption(raw["pass_number"], raw["order"], tuple(Position(**position) for position in raw["positions"]))
    begin = 0 if resume_pass is None else resume_pass + 1
    return found if (found.pass_number, found.order) == (begin, expected_order) else None


def discard(folder: JobFolder) -> None:
    """When its pass is complete, or another interruption takes its place. `done` goes first."""
    (directory(folder) / passes.DONE).unlink(missing_ok=True)
    shutil.rmtree(directory(folder), ignore_errors=True)
