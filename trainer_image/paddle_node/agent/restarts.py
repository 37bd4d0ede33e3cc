"""A container that starts again in its pod: how often it may, and what the one before it left.

The kubelet starts a killed container again without end and without telling the Job; after a few times within an hour the pod
leaves instead. What was left in shared memory counts against the container's memory, and is removed.
"""

import contextlib
import json
import time
from pathlib import Path

from paddle_node.contract import ExitCode
from paddle_node.failure import Failure

MOST = 5
"""Restarts within `WITHIN` seconds that a pod may have."""
WITHIN = 3600.0


def begin(home: Path, shared_memory: Path | None = None) -> None:
    """Counts this start in the pod's scratch, and clears the pod's own `shared_memory`. Raises `Failure` after too many."""
    starts, now = home / "starts.json", time.monotonic()
    left = list(shared_memory.glob("*")) if shared_memory is not None and starts.exists() else []
    recent: list[float] = []
    with contextlib.suppress(OSError, ValueError, TypeError):
        recent = [clock for clock in map(float, json.loads(starts.read_text())) if now - WITHIN < clock <= now]
    with contextlib.suppress(OSError):
        starts.write_text(json.dumps([*recent, now]))
        for segment in left:
            segment.unlink()
    if len(recent) > MOST:
        killed = f"this pod's container was killed {len(recent)} times within an hour"
        raise Failure(ExitCode.KILLED_AGAIN, f"{killed}: if it ran out of memory, raise resources.memory")
