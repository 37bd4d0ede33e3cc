"""Whether somebody who beats by touching a file on the volume is still there.

Promises: only the volume's clock counts; who beat a moment ago has one more expiry to beat again, so that one that was
killed is told from one that works.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

LOOK = 1.0
"""Seconds between two looks."""


def awaited(beat: Callable[[], float], expiry: float, folder: Path, waiting: Callable[[], None]) -> bool:
    """`beat` tells when the last sign was given (0: never, or taken back); `folder` is where the volume is asked for its time.

    `waiting` is called once, where the answer needs time. Raises OSError.
    """
    first, said = beat(), False
    while (newest := beat()) == first:
        if _now(folder) - newest >= expiry:
            return False
        if not said:
            said = True
            waiting()
        time.sleep(LOOK)
    return newest > first


def _now(folder: Path) -> float:
    # Not by process number: pods that share a volume have equal ones.
    probe = folder / f".now.{os.urandom(4).hex()}"
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)
