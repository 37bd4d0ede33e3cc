"""Tasks beside a main one, which a fault of any of them ends: it would hang without them."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """Made by the task that owns them. `fault` is why that one was cancelled; None where it was `interrupt`ed."""

    def __init__(self) -> None:
        self._owner = asyncio.current_task()
        self._tasks: set[asyncio.Task[None]] = set()
        self.fault: BaseException | None = None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs `work` beside the owner."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def interrupt(self) -> None:
        """Cancels the owner wherever it waits, once."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.cancel()

    def let_finish(self) -> None:
        """From now on nothing interrupts the owner."""
        self._owner = None

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None and self._owner is not None:
            self.fault = fault
            self.interrupt()
