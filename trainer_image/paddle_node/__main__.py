"""The entry point of a pod: parses the environment, supervises, exits.

Each deliberate end writes one sentence to the pod's output and to Kubernetes' termination log, and
exits with a code of `contract.ExitCode` or the trainer's own.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from paddle_node import contract, environment, runtimes
from paddle_node.agent import limits, output
from paddle_node.agent.agent import Agent
from paddle_node.contract import ExitCode, Way
from paddle_node.failure import Failure
from paddle_node.rendezvous import discovery
from paddle_node.retry import disk_full
from paddle_node.runtimes import Runtime
from paddle_node.staging.preparation import prepare
from paddle_node.volume.steps import one_line

RESTARTS, WITHIN = 5, 3600.0
"""Restarts of its container that a pod may have within this many seconds. The kubelet would restart
it without end, and not inform the Job.
"""


def main(
    environ: Mapping[str, str] = os.environ,
    arguments: Sequence[str] | None = None,
    find_runtime: Callable[[Way], Runtime] = runtimes.find_runtime,
) -> int:
    """Runs the pod and returns its exit code."""
    last_words = contract.path(contract.TERMINATION_LOG, environ)
    try:
        pod = environment.parse(environ, sys.argv[1:] if arguments is None else arguments)
        runtime = find_runtime(pod.way)
        with contextlib.suppress(OSError):
            pod.home.mkdir(parents=True, exist_ok=True)
        _count_start(
            pod.home,
            contract.path(contract.SHARED_MEMORY, environ) if last_words.exists() else None,
        )
        limits.raise_open_files()
        discovery_ = discovery.find_discovery(pod.discovery, pod, partial(output.say_as_agent, pod))
        return asyncio.run(
            Agent(
                pod,
                runtime,
                discovery_,
                lambda ready: prepare(ready, partial(output.say_as_agent, ready)),
            ).run()
        )
    except Failure as failure:
        code, sentence = failure.code, failure.sentence
    except OSError as error:
        # A volume may refuse anything at any time: another try may find it healthy again.
        full = disk_full(error)
        code = ExitCode.VOLUME_FULL if full else 1
        remedy = "; make room on the volume, then run again" if full else ""
        where = f"{error.filename}: " if error.filename else ""
        sentence = (
            "this pod cannot continue: "
            f"{where}{error.strerror or str(error) or type(error).__name__}{remedy}"
        )
    output.say("agent", one_line(sentence))
    with contextlib.suppress(OSError):
        if last_words.exists():
            last_words.write_text(sentence + "\n")
    return int(code)


def _count_start(home: Path, shared_memory: Path | None) -> None:
    """Counts the starts in the pod's scratch. Raises `Failure` after too many.

    Removes what a killed container left in shared memory: it would count against the next
    container's memory.
    """
    starts, now = home / "starts.json", time.monotonic()
    left = list(shared_memory.glob("*")) if shared_memory is not None and starts.exists() else []
    recent: list[float] = []
    with contextlib.suppress(OSError, ValueError, TypeError):
        recent = [
            clock
            for clock in map(float, json.loads(starts.read_text()))
            if now - WITHIN < clock <= now
        ]
    with contextlib.suppress(OSError):
        starts.write_text(json.dumps([*recent, now]))
        for segment in left:
            segment.unlink()
    if len(recent) > RESTARTS:
        killed = f"this pod's container was killed {len(recent)} times within an hour"
        raise Failure(
            ExitCode.KILLED_AGAIN, f"{killed}: if it ran out of memory, raise resources.memory"
        )


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Threads that wait for a dead volume or name server must not hold up the exit.
    os._exit(code)
