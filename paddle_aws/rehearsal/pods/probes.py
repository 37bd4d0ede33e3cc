"""A container's probes: run as the kubelet runs them, beside the container."""

import asyncio
from pathlib import Path

from paddle_aws.rehearsal.pods.container import RunningContainer
from paddle_aws.rehearsal.pods.environment import expand
from paddle_aws.rehearsal.pods.folders import map_word
from paddle_aws.rehearsal.pods.manifests import Container, Probe


async def run_probes(
    container: Container, running: RunningContainer, root: Path, log: Path
) -> bool:
    """Runs the startup probe until it succeeds, then the liveness probe. Returns False once one
    gives up, and True if there is none to run any more.

    Args:
        root: where the container's paths begin.
        log: gets the probes' own lines; the container's log says which one gave up.
    """
    if container.startup is not None and not await _run(
        "startup", container.startup, running, root, log
    ):
        return False
    return container.liveness is None or await _run(
        "liveness", container.liveness, running, root, log
    )


async def _run(kind: str, probe: Probe, running: RunningContainer, root: Path, log: Path) -> bool:
    """Runs a probe until it gives up, or, at startup, succeeds."""
    command = [map_word(expand(word, running.environment), root) for word in probe.command]
    failures = 0
    while True:
        if await running.run_beside(command, probe.timeout, log) == 0:
            failures = 0
            if kind == "startup":
                return True
        else:
            failures += 1
            if failures >= probe.failures:
                with running.log.open("a") as log_file:
                    log_file.write(
                        f"{kind} probe failed {failures} times: the container is ended\n"
                    )
                return False
        await asyncio.sleep(probe.period)
