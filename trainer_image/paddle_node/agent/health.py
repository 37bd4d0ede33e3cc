"""Is this pod alive, and does it make progress? The agent writes a status; the probe reads it.

The probe fails only in the pod at fault: a pod that waits for others is healthy, and its status
names them. The probe kills an agent that has been silent for a minute: the kubelet would wait out
the pod's whole grace period.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddle_node import contract
from paddle_node.agent.process_table import read_entry
from paddle_node.contract import Variable
from paddle_node.environment import Reader

STALE = 15.0
"""Seconds without a new status after which the agent counts as stuck; it writes one every
second.
"""
FROZEN = 60.0
"""Seconds without a new status after which the probe kills the agent: before the liveness probe
reaches its failure threshold.
"""


def status_file(home: Path) -> Path:
    """The status file, in the pod's own scratch: the volume's state must not decide whether a pod
    is alive.
    """
    return home / "status.json"


def write(home: Path, state: str, where: str = "", held: float = 0.0) -> None:
    """Replaces the status; its fields are those of `messages.Status`. Its time is the machine's
    clock: the probe shares it.
    """
    target = status_file(home)
    temporary = target.with_name(".status.json")
    process_facts = {
        "clock": time.monotonic(),
        "process": os.getpid(),
        "started": (entry := read_entry(os.getpid())) and entry.started,
    }
    temporary.write_text(
        json.dumps({**process_facts, "state": state, "where": where, "held": held}) + "\n"
    )
    temporary.replace(target)


def assess(status: Mapping[str, Any] | None, now: float, stall: float) -> tuple[bool, str]:
    """Whether the pod is healthy, and one sentence that says why."""
    if status is None:
        return False, "the agent has not written a status yet"
    age = now - float(status["clock"])
    if age > STALE:
        return False, f"the agent has been silent for {age:.0f} s"
    sentence = ": ".join(filter(None, (status["state"], status["where"])))
    if status["held"] > stall:
        return False, f"{sentence} (limits.stall_seconds is {stall:g})"
    return True, sentence


def kill_frozen(status: Mapping[str, Any] | None, now: float) -> bool:
    """Kills the agent that wrote the status if it is frozen; returns whether it did. PID 1 of a
    container is out of reach.
    """
    frozen = status is not None and now - float(status["clock"]) > FROZEN and status["process"] != 1
    if status is None or not frozen or (entry := read_entry(status["process"])) is None:
        return False
    if entry.started != status["started"]:
        return False
    os.kill(status["process"], signal.SIGKILL)
    return True


def main(environ: Mapping[str, str] = os.environ) -> int:
    """The probe command: prints the sentence. Returns 0 if the pod is healthy, else 1."""
    home = contract.path(contract.HOME, environ)
    try:
        status = json.loads(status_file(home).read_text())
    except (OSError, ValueError):
        status = None
    healthy, sentence = assess(status, time.monotonic(), Reader(environ).seconds(Variable.STALL))
    if kill_frozen(status, time.monotonic()):
        # The kubelet should not count this as a failure: it would end the pod, whose container
        # restarts on its own.
        healthy, sentence = True, f"{sentence}: it is killed"
    print(sentence, file=sys.stdout if healthy else sys.stderr)
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
