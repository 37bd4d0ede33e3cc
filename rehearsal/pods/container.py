"""One container as a process tree that ends as a whole, whatever happens to the rehearsal."""

import asyncio
import contextlib
import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

_INIT = Path(__file__).with_name("container_init.py")


class Bind(NamedTuple):
    """`source` lies over `target`, for one container alone; targets within others come after them."""

    source: Path
    target: Path
    read_only: bool = False


def _argument(binds: Sequence[Bind]) -> str:
    return json.dumps([[str(bind.source), str(bind.target), bind.read_only] for bind in binds])


class RunningContainer:
    """A started container. `wait()` gives its exit code as a container runtime reports it."""

    def __init__(
        self, process: asyncio.subprocess.Process, environment: Mapping[str, str], folder: Path, log: Path, binds: Sequence[Bind]
    ) -> None:
        self._process, self.environment, self.log = process, environment, log
        self._folder, self._binds = folder, binds

    @classmethod
    async def start(
        cls, argv: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path, binds: Sequence[Bind] = ()
    ) -> Self:
        """Start `argv` in `folder` with exactly `environment`; both its streams go to the file `log`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(_INIT), _argument(binds), *argv,
                stdin=asyncio.subprocess.PIPE, stdout=output, stderr=output,
                env=dict(environment), cwd=folder, start_new_session=True,
            )  # fmt: skip
        return cls(process, environment, folder, log, binds)

    async def wait(self) -> int:
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    async def terminate(self, grace: float) -> int:
        """SIGTERM to the first process, SIGKILL to everything `grace` seconds later: what the kubelet does."""
        with contextlib.suppress(OSError):
            self._orders.write(b"T")
            await self._orders.drain()
        try:
            return await asyncio.wait_for(self.wait(), grace)
        except TimeoutError:
            return await self.kill()

    async def kill(self) -> int:
        """SIGKILL to everything, now."""
        self._orders.close()
        return await self.wait()

    async def run_beside(self, argv: Sequence[str], timeout: float, log: Path) -> int:
        """Runs a probe's command, which sees what the container sees; 124 when `timeout` seconds were not enough."""
        probe = await type(self).start(argv, self.environment, self._folder, log, self._binds)
        try:
            # Not `wait_for`: before Python 3.12 it forgets to be cancelled where the command ends in the same moment.
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


@functools.cache
def private_mounts_work() -> bool:
    """Whether this machine lets a container have mounts of its own: some keep such namespaces to root."""
    with tempfile.TemporaryDirectory() as folder:
        binds = _argument([Bind(Path(folder), Path(folder), read_only=True)])
        # Its standard input stays open: an end there is the order to end.
        with subprocess.Popen(
            [sys.executable, "-I", "-S", str(_INIT), binds, "true"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder
        ) as process:
            return process.wait() == 0
