"""One container as a process tree that ends as a whole, whatever happens to the rehearsal."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from paddle_aws.operations.errors import Failed
from paddle_aws.rehearsal.pods.limits import INIT


@dataclass(frozen=True)
class CallFilter:
    """A seccomp filter for a container's processes, and the function that answers the calls that it
    holds.
    """

    program: bytes
    listen: "Callable[[RunningContainer, int], None]"
    """Gets the container and the filter's listener, and owns the listener from then on."""


@dataclass(frozen=True)
class RunningContainer:
    """A started container. `wait()` returns its exit code as a container runtime reports it."""

    _process: asyncio.subprocess.Process
    environment: Mapping[str, str]
    _folder: Path
    log: Path

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        log: Path,
        calls: "CallFilter | None" = None,
        limits: Sequence[str] = (),
    ) -> Self:
        """Starts `argv` in `folder` with exactly `environment`; stdout and stderr go to the file
        `log`. `calls` filters its system calls; `limits` are options of container_init.py. Raises
        Failed if this machine cannot filter them.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        words, passed = [sys.executable, "-I", "-S", str(INIT), *limits], list[int]()
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(log.open("ab"))
            if calls is not None:
                ours, theirs = map(stack.enter_context, socket.socketpair())
                words += ["--filter", calls.program.hex(), str(theirs.fileno())]
                passed = [theirs.fileno()]
            process = await asyncio.create_subprocess_exec(
                *words, *argv,
                stdin=asyncio.subprocess.PIPE, stdout=output, stderr=output,
                env=dict(environment), cwd=folder, start_new_session=True, pass_fds=passed,
            )  # fmt: skip
            container = cls(process, environment, folder, log)
            if calls is not None:
                theirs.close()
                _, listeners, *_ = await asyncio.to_thread(socket.recv_fds, ours, 1, 1)
                if not listeners:
                    await container.kill()
                    raise Failed(f"this machine cannot filter system calls: {log.read_text()}")
                calls.listen(container, listeners[0])
        return container

    @property
    def init(self) -> int:
        """The process id of the container's init, above all its processes."""
        return self._process.pid

    async def wait(self) -> int:
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    async def terminate(self, grace: float) -> int:
        """Sends SIGTERM to the first process and SIGKILL to all processes `grace` seconds later, as
        the kubelet does.
        """
        with contextlib.suppress(OSError):
            self._orders.write(b"T")
            await self._orders.drain()
        try:
            return await asyncio.wait_for(self.wait(), grace)
        except TimeoutError:
            return await self.kill()

    async def kill(self) -> int:
        """Sends SIGKILL to all processes now."""
        self._orders.close()
        return await self.wait()

    async def run_beside(self, argv: Sequence[str], timeout: float, log: Path) -> int:
        """Runs a probe's command, which sees what the container sees. Returns its exit code, or 124
        after `timeout` seconds.
        """
        probe = await type(self).start(argv, self.environment, self._folder, log)
        try:
            # Not `wait_for`: before Python 3.12 it loses a cancellation if the command ends at the
            # same moment.
            async with asyncio.timeout(timeout):
                return await probe.wait()
        except TimeoutError:
            return 124
        finally:
            await probe.kill()

    @property
    def _orders(self) -> asyncio.StreamWriter:
        assert self._process.stdin is not None
        return self._process.stdin
