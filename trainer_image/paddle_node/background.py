"""Work beside the event loop's main task: other tasks, and blocking calls, such as to a volume that
may answer late.

A call that never returns holds up neither the loop nor the exit; asyncio would wait for its own
executor. Some threads are made beforehand: a program may take all process ids of the pod, and the
lease must be renewed all the same.
"""

import asyncio
import concurrent.futures
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from paddle_node.contract import ExitCode
from paddle_node.environment import PodEnvironment
from paddle_node.failure import Failure
from paddle_node.retry import REMIND_INTERVAL, retry

T = TypeVar("T")
RESERVE = 4
"""Threads that are made beforehand: more calls than that rarely wait at once."""


class Threads:
    """Threads for blocking calls. They die with the program. A call for which no thread can be
    started waits for one that is busy.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = 0
        """Idle threads minus the calls that wait."""
        self._lock = threading.Lock()

    def reserve(self) -> None:
        """Makes the first threads."""
        with self._lock:
            while self._idle < RESERVE and self._start():
                pass

    def run(self, work: Callable[[], None]) -> None:
        """Calls `work`, which raises nothing, in a thread."""
        with self._lock:
            if self._idle <= 0:
                self._start()
            self._idle -= 1
        self._work.put(work)

    def _start(self) -> bool:
        if not start(threading.Thread(target=self._serve, name="calls", daemon=True)):
            return False
        self._idle += 1
        return True

    def _serve(self) -> None:
        while True:
            self._work.get()()
            with self._lock:
                self._idle += 1


threads = Threads()


def start(thread: threading.Thread) -> bool:
    """Starts a thread. Returns False if the pod has no process id left for it."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


class NoAnswer(Failure):
    """The volume hangs."""


async def call(function: Callable[[], T]) -> T:
    """Returns or raises what `function` does, run in one of the `threads`."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()  # The waiter may be cancelled, the call may not.

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threads.run(work)
    return await asyncio.wrap_future(future)


async def ask(
    question: Callable[[], T],
    pod: PodEnvironment,
    say: Callable[[str], None],
    allowed: float = 0.0,
) -> T:
    """Returns the volume's answer to a question that may itself wait for `allowed` seconds. Raises
    `NoAnswer` if it hangs.
    """
    began = time.monotonic()
    waited, pause, deadline = 0.0, allowed + REMIND_INTERVAL, allowed + pod.peer_deadline
    answer = asyncio.ensure_future(call(lambda: retry(question, say)))
    try:
        while True:
            await asyncio.wait({answer}, timeout=min(pause, deadline - waited))
            if answer.done():
                return answer.result()
            waited, pause = time.monotonic() - began, REMIND_INTERVAL
            sentence = f"{pod.folder.run_state} has not answered for {waited:.0f} s"
            if waited >= deadline:
                raise NoAnswer(
                    ExitCode.CANNOT_END, f"{sentence}: nothing can be read or recorded there"
                )
            say(sentence)
    finally:
        answer.cancel()


class Tasks:
    """Tasks beside a main task, their owner, which made them and would hang without them: a fault
    in any of them cancels it.

    `fault` is why the owner was cancelled; None if it was `interrupt`ed.
    """

    def __init__(self) -> None:
        self._owner = asyncio.current_task()
        self._tasks: set[asyncio.Task[None]] = set()
        self.fault: BaseException | None = None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs `work` beside the owner."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)
        return task

    def interrupt(self) -> None:
        """Cancels the owner, wherever it waits, at most once."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.cancel()

    def let_finish(self) -> None:
        """From now on nothing interrupts the owner."""
        self._owner = None

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if (
            not task.cancelled()
            and (fault := task.exception()) is not None
            and self._owner is not None
        ):
            self.fault = fault
            self.interrupt()
