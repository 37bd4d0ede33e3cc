"""What the pod of trainer 0 holds for all pods: the lease on the job's folder, and the rendezvous server.

Promises: nobody is served without the lease; a holder that lost it, or could not renew it in time, ends.
"""

import asyncio
import contextlib
from collections.abc import Callable

from paddle_node import background
from paddle_node.agent.discovery import Discovery
from paddle_node.background import Tasks
from paddle_node.environment import NodeEnvironment
from paddle_node.rendezvous import lease
from paddle_node.rendezvous.attempts import Record
from paddle_node.rendezvous.members import Members
from paddle_node.rendezvous.server import Server, Volume
from paddle_node.runtimes import Runtime

RELEASE = 5.0
"""Seconds for the volume to take the lease back."""


class Host:
    """From `serve` to `close`."""

    def __init__(self, node: NodeEnvironment, discovery: Discovery, tasks: Tasks, say: Callable[[str], None]) -> None:
        self._node = node
        self._discovery = discovery
        self._tasks = tasks
        self._say = say
        self._lease: lease.Lease | None = None
        self._beating: asyncio.Task[None] | None = None
        self._server: Server | None = None

    async def serve(self, runtime: Runtime, incarnation: str, secret: str) -> None:
        node, state, say = self._node, self._node.folder.run_state, self._say
        held = await background.ask(
            lambda: lease.acquire(state, node.run_id, incarnation, node.lease, say), node, say, node.lease
        )
        self._lease = held
        self._beating = self._tasks.spawn(self._keep(held))
        record = await background.ask(lambda: Record(node.folder, node.run_id, held.check), node, say)
        progress = runtime.progress(node, say)
        volume = await background.ask(lambda: Volume(node, record, progress, say), node, say)
        members = Members(node.trainers, self._discovery.membership, self._discovery.name_of)
        self._server = Server(node, members, volume, secret, say, self._tasks)
        await self._server.serve()

    async def close(self) -> None:
        """Serves nobody any more, and lets the folder's next keeper in."""
        if self._beating is not None:
            self._beating.cancel()
        if self._server is not None:
            await self._server.close()
        if self._lease is not None:
            with contextlib.suppress(TimeoutError):  # It expires instead.
                await asyncio.wait_for(background.call(self._lease.release), RELEASE)

    async def _keep(self, held: lease.Lease) -> None:
        while True:
            await asyncio.sleep(min(held.interval, max(0.0, held.left)))
            try:
                # A volume that hangs must not hold up the look at the clock; a pod that was frozen may hear who replaced it.
                async with asyncio.timeout(max(1.0, held.left)):
                    await background.call(held.beat)
            except TimeoutError:
                pass
            except lease.TakenOver as failure:
                self._lease = None
                if failure.same_run and self._discovery.moved():
                    return  # Ids were given anew, and another pod heard of it first.
                raise
            except OSError as error:
                self._say(f"the lease cannot be looked at: {error.strerror or error}; the next heartbeat tries again")
            if held.left <= 0:
                self._lease = None  # Not released: it expires when everything of this run has stopped.
                raise held.overdue()
