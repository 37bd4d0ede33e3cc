"""One container as a process tree that ends as a whole, whatever happens to the rehearsal."""

import asyncio
import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

_INIT = Path(__file__).with_name("container_init.py")


class RunningContainer:
    """A started container. `wait()` returns its exit code as a container runtime reports it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        environment: Mapping[str, str],
        folder: Path,
        log: Path,
    ) -> None:
        self._process, self.environment, self._folder, self.log = process, environment, folder, log

    @classmethod
    async def start(
        cls, argv: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
    ) -> Self:
        """Starts `argv` in `folder` with exactly `environment`; stdout and stderr go to the file
        `log`.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(_INIT), *argv,
                stdin=asyncio.subprocess.PIPE, stdout=output, stderr=output,
                env=dict(environment), cwd=folder, start_new_session=True,
            )  # fmt: skip
        return cls(process, environment, folder, log)

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
