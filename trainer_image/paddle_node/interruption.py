"""A checkpoint inside a pass, every `checkpoint_minutes` and on SIGTERM: the next attempt, or run, goes on behind it.

Promises: it lies in its attempt's folder, is sealed like a pass, and is never taken for one; it is used only by one that
would read the same records in the same order (same data, program, seed and number of trainers) right behind the same pass;
otherwise the pass begins anew, which loses time and no record.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass


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
    odd: int = 0
    """Records that could not be read."""


def order(data: str, seed: int, trainers: int) -> str:
    """Equal for runs that read the same records, of the data with that digest, in the same order."""
    return hashlib.sha256(json.dumps([seed, trainers, data]).encode()).hexdigest()
