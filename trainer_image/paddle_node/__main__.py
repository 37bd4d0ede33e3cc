"""The entry of a pod: parse the environment, supervise, exit.

Promises: a wrong setting, or any other end on purpose, is one sentence on the pod's output and in Kubernetes'
termination log, and an exit code of `contract.ExitCode` or the trainer's own.
"""

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from paddle_node import contract, environment, runtimes
from paddle_node.agent import discovery, output, restarts
from paddle_node.agent.agent import Agent
from paddle_node.contract import ExitCode
from paddle_node.failure import Failure
from paddle_node.runtimes import Runtime
from paddle_node.staging.preparation import prepare


def main(
    environ: Mapping[str, str] = os.environ,
    arguments: Sequence[str] | None = None,
    runtime_by_name: Callable[[str], Runtime] = runtimes.by_name,
) -> int:
    """The pod's exit code."""
    try:
        node = environment.parse(environ, sys.argv[1:] if arguments is None else arguments)
        runtime = runtime_by_name(node.runtime)
        with contextlib.suppress(OSError):
            node.home.mkdir(parents=True, exist_ok=True)
        in_kubernetes = contract.path(contract.TERMINATION_LOG, environ).exists()
        restarts.begin(node.home, contract.path(contract.SHARED_MEMORY, environ) if in_kubernetes else None)
        found = discovery.of(node, partial(output.of_agent, node))
        return asyncio.run(Agent(node, runtime, found, lambda ready: prepare(ready, partial(output.of_agent, ready))).run())
    except Failure as failure:
        return _ended(environ, failure.code, failure.sentence)
    except OSError as error:
        # A volume may refuse anything at any time: another try may find it well again.
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        where = f"{error.filename}: " if error.filename else ""
        why = error.strerror or str(error) or type(error).__name__
        return _ended(environ, ExitCode.VOLUME_FULL if full else 1, f"this pod cannot go on: {where}{why}")


def _ended(environ: Mapping[str, str], code: int, sentence: str) -> int:
    output.say("agent", sentence)
    last_words = contract.path(contract.TERMINATION_LOG, environ)
    with contextlib.suppress(OSError):
        if last_words.exists():
            last_words.write_text(sentence + "\n")
    return int(code)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Threads that wait for a dead volume or name server must not hold up the exit.
    os._exit(code)
