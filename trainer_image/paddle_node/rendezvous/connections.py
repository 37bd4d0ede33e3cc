"""The rendezvous server's connections: it closes one that does not prove in time that it belongs to
the run, and makes room for the run's own among strangers.
"""

import asyncio
import resource
import socket
from collections.abc import Awaitable, Callable
from functools import partial

from paddle_node.contract import ExitCode
from paddle_node.environment import PodEnvironment
from paddle_node.failure import Failure
from paddle_node.rendezvous import handshake
from paddle_node.rendezvous import messages as m

HANDSHAKE_LIMIT = 256
"""So many connections, besides the run's own, may be in their handshake at once. Above that, the
oldest silent one is closed.
"""
OWN_FILES = 100
"""Open files that this process needs besides connections."""
ROOM_WAIT = 0.1
"""Seconds to wait for room if there is no stranger that could make some."""

Serve = Callable[[m.Hello | m.Join, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Connections:
    """Accepts connections, and calls `serve` with each that belongs to the run."""

    def __init__(
        self, pod: PodEnvironment, secret: str, serve: Serve, say: Callable[[str], None]
    ) -> None:
        """Listens on the pod's own address. Raises `Failure` if the port is taken."""
        self._pod, self._secret, self._serve, self._say = pod, secret, serve, say
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """Connections that said nothing yet, the oldest first."""
        self._greeted: dict[asyncio.StreamWriter, None] = {}
        """Connections that said who they are, and did not prove it yet."""
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._crowded = 0
        try:
            family = socket.AF_INET6 if ":" in pod.pod_ip else socket.AF_INET
            self._listener = socket.create_server(
                (pod.pod_ip, pod.control_port), family=family, backlog=4096
            )
            self._listener.setblocking(False)
        except OSError as error:
            raise Failure(
                ExitCode.BAD_SETTING,
                f"port {pod.control_port} of {pod.pod_ip} cannot be served ({error.strerror}): "
                "choose another CONTROL_PORT, or POD_IP is not this pod's address",
            ) from None

    async def listen(self) -> None:
        """Accepts connections while there is room for them. asyncio's own server accepts first, and
        at the limit of open files prints a traceback for each one that waits.
        """
        loop = asyncio.get_running_loop()
        while True:
            await self._make_room()
            try:
                connection, _ = await loop.sock_accept(self._listener)
                reader = asyncio.StreamReader(limit=handshake.LINE_BYTES)
                transport, protocol = await loop.connect_accepted_socket(
                    partial(asyncio.StreamReaderProtocol, reader), connection
                )
            except OSError:  # The connection is gone again, or another limit was reached.
                self._turn_away()
                await asyncio.sleep(ROOM_WAIT)
                continue
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            self._silent[writer] = None
            self._open[writer] = asyncio.create_task(self._accept(reader, writer))

    def close(self) -> None:
        """Stops listening, and closes the connections of strangers."""
        self._listener.close()
        while self._turn_away():
            pass

    async def _make_room(self) -> None:
        """Closes strangers, first those that say nothing, until one more connection is allowed."""
        strangers = HANDSHAKE_LIMIT + 2 * self._pod.trainers
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        while (
            len(self._silent) + len(self._greeted) >= strangers
            or len(self._open) >= files - OWN_FILES
        ):
            if not self._turn_away():
                if self._crowded != len(self._open):
                    self._crowded = len(self._open)
                    self._say(
                        f"{self._crowded} connections are all that a limit of {files} open files "
                        "has room for: raise it (ulimit -Hn) for so many trainers"
                    )
                await asyncio.sleep(ROOM_WAIT)
        await asyncio.sleep(0)  # Between two strangers, others are heard.

    def _turn_away(self) -> bool:
        for strangers in (self._silent, self._greeted):
            if (writer := next(iter(strangers), None)) is not None:
                del strangers[writer], self._open[writer]
                writer.transport.abort()
                return True
        return False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if (client := await self._admit(reader, writer)) is not None:
                await self._serve(client, reader, writer)
        except asyncio.CancelledError:
            pass  # This pod ends: Python 3.11 would print a traceback.
        finally:
            self._open.pop(writer, None)
            writer.close()

    async def _admit(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> m.Hello | m.Join | None:
        """Returns who connects; None if the other side does not prove in time that it knows the
        secret.
        """
        dialogue = handshake.admit(self._secret)
        try:
            async with asyncio.timeout(handshake.HANDSHAKE_SECONDS):
                lines = next(dialogue)
                while True:
                    writer.write(lines)
                    lines = dialogue.send(await m.read_line(reader, handshake.LINE_BYTES))
                    if writer in self._silent:
                        del self._silent[writer]
                        self._greeted[writer] = None
        except StopIteration as end:
            admitted: handshake.Admission | None = end.value
        except (OSError, EOFError, ValueError, TimeoutError):
            return None
        finally:
            self._silent.pop(writer, None)
            self._greeted.pop(writer, None)
        if admitted is None:
            return None
        writer.write(admitted.answer)
        return admitted.client
