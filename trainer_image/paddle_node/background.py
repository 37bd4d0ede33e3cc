"""What runs beside the event loop's main task: other tasks, and blocking calls, such as to a volume that may answer late.

A call that never returns holds up neither the loop nor the exit: asyncio's own executor would be waited for.
"""

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from paddle_node.contract import ExitCode
from paddle_node.environment import NodeEnvironment
from paddle_node.failure import Failure
from paddle_node.retry import REMIND, retry

T = TypeVar("T")


class NoAnswer(Failure):
    """The volume hangs."""


async def call(function: Callable[[], T]) -> T:
    """What `function` returns or raises, computed in a thread of its own that dies with the program."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()  # Who waits may be cancelled, not the call.

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name=getattr(function, "__name__", "call"), daemon=True).start()
    return await asyncio.wrap_future(future)


async def ask(question: Callable[[], T], node: NodeEnvironment, say: Callable[[str], None], allowed: float = 0.0) -> T:
    """What the volume answers to a question that may itself wait for `allowed` seconds. Raises `NoAnswer` where it hangs."""
    began = time.monotonic()
    waited, pause, deadline = 0.0, allowed + REMIND, allowed + node.peer_deadline
    answer = asyncio.ensure_future(call(lambda: retry(question, say)))
    try:
        while True:
            await asyncio.wait({answer}, timeout=min(pause, deadline - waited))
            if answer.done():
                return answer.result()
            waited, pause = time.monotonic() - began, REMIND
            sentence = f"{node.folder.run_state} has not answered for {waited:.0f} s"
            if waited >= deadline:
                raise NoAnswer(ExitCode.CANNOT_END, f"{sentence}: nothing can be read or recorded there")
            say(sentence)
    finally:
        answer.cancel()


class Tasks:
    """Tasks beside a main one, which made them and would hang without them: a fault of any of them cancels it.

    `fault` is why it was cancelled; None where it was `interrupt`ed.
    """

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
