"""A supervisor's connection to the supervisor of trainer 0.

Promises: both sides speak at least every second; a connection that breaks, or falls silent for
`protocol.SILENCE` seconds, is reported exactly once, as None.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from paddle_node import protocol
from paddle_node.protocol import Message

CONNECT = 5.0
"""Seconds for one try; the caller tries again."""


class Link:
    """Open from `open` until `close`, or until the other side is lost."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hear: Callable[[Message | None], None]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._hear = hear
        self._heard = time.monotonic()
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._beat())]

    @classmethod
    async def open(cls, address: str, port: int, hello: Message, hear: Callable[[Message | None], None]) -> Link:
        """Connects and introduces this pod. Raises OSError when nobody listens (yet)."""
        connecting = asyncio.open_connection(address, port, limit=protocol.LONGEST)
        try:
            reader, writer = await asyncio.wait_for(connecting, CONNECT)
        except TimeoutError:
            raise OSError(f"{address}:{port} does not answer") from None
        link = cls(reader, writer, hear)
        link.send(hello)
        return link

    def send(self, message: Message) -> None:
        """Queues a message; a lost connection swallows it, and is reported by itself."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(protocol.encode(message))

    async def close(self) -> None:
        """After the last message has been handed to the system."""
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.drain(), 1.0)
        for task in self._tasks:
            task.cancel()
        self._writer.close()

    async def _listen(self) -> None:
        while (message := await protocol.receive(self._reader)) is not None:
            self._heard = time.monotonic()
            self._hear(message)
        self._lost()

    async def _beat(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(protocol.BEAT)
            now = time.monotonic()
            # After a pause of our own, what the other side said is still unread: judge it at the next beat.
            late = now - last > 3 * protocol.BEAT
            last = now
            if now - self._heard > protocol.SILENCE and not late:
                self._lost()
                return
            self.send({"beat": 1})

    def _lost(self) -> None:
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._writer.close()
        self._hear(None)
