"""An agent's connection to the rendezvous server. The server proves that it knows the run's secret.

A connection that breaks, or is silent for `heartbeat.LOST_AFTER` seconds, is reported exactly once,
as None.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Self

from paddle_node.failure import Failure
from paddle_node.rendezvous import handshake, heartbeat
from paddle_node.rendezvous import messages as m

CONNECT = 5.0
"""Seconds for one try; the caller tries again."""


class Client:
    """A connection that is open from `open` until `close`, or until the other side is lost."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        beat: Callable[[], m.Beat],
    ) -> None:
        self.messages: asyncio.Queue[m.Message | None] = asyncio.Queue()
        """The server's messages, without signs of life; None: the server was lost."""
        self.status = m.Status("", "", 0.0)
        self._reader = reader
        self._writer = writer
        self._sign = beat
        self._heard = time.monotonic()
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._beat())]

    @classmethod
    async def open(
        cls, address: str, port: int, secret: str, hello: m.Hello, beat: Callable[[], m.Beat]
    ) -> Self:
        """Connects and introduces this pod; `beat` makes its signs of life. Raises OSError if the
        run's server is not available, `Failure` if it refuses.
        """
        writer = None
        try:
            async with asyncio.timeout(CONNECT):
                reader, writer = await asyncio.open_connection(
                    address, port, limit=handshake.LINE_BYTES
                )
                if not await _check_server(reader, writer, secret, hello):
                    raise ValueError
                line = await m.read_line(reader, handshake.LINE_BYTES)
                answer = m.parse(line, m.Welcome, m.Refused)
            if isinstance(answer, m.Refused):
                raise (
                    Failure(answer.code, answer.sentence)
                    if answer.code
                    else OSError(answer.sentence)
                )
            return cls(reader, writer, beat)
        except (TimeoutError, EOFError, ValueError, OSError, Failure) as error:
            if writer is not None:
                writer.close()
            if isinstance(error, TimeoutError):
                raise OSError(f"{address}:{port} does not answer") from None
            if isinstance(error, EOFError | ValueError):
                raise OSError(
                    f"what answers at {address}:{port} is not this run's rendezvous server"
                ) from None
            raise

    def send(self, message: m.Message) -> None:
        """Queues a message. A lost connection swallows it; the loss is reported separately."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(m.encode(message))

    async def close(self) -> None:
        """Closes the connection after handing the last message to the system."""
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.drain(), 1.0)
        for task in self._tasks:
            task.cancel()
        self._writer.close()

    async def _listen(self) -> None:
        while (message := await m.receive(self._reader, *m.TO_AGENT)) is not None:
            self._heard = time.monotonic()
            if isinstance(message, m.Status):
                self.status = message
            else:
                self.messages.put_nowait(message)
        self._close_lost()

    async def _beat(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(heartbeat.INTERVAL)
            now = time.monotonic()
            # After a pause of this process, the other side's messages are still unread: judge at
            # the next beat.
            late = now - last > 3 * heartbeat.INTERVAL
            last = now
            if now - self._heard > heartbeat.LOST_AFTER and not late:
                self._close_lost()
                return
            self.send(self._sign())

    def _close_lost(self) -> None:
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._writer.close()
        self.messages.put_nowait(None)


async def _check_server(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: str, hello: m.Hello
) -> bool:
    """Returns whether the server proved that it is this run's."""
    dialogue = handshake.introduce(secret, hello)
    lines = next(dialogue)
    while True:
        writer.write(lines)
        line = await m.read_line(reader, handshake.LINE_BYTES)
        try:
            lines = dialogue.send(line)
        except StopIteration as end:
            return bool(end.value)
