"""Blocking calls beside the event loop: name look-ups, and a volume that may answer late.

Promises: `call` and `ask` never hold up the loop, and a call that never returns never holds up the exit (asyncio's own
executor would be waited for).
"""

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from paddle_node.contract import ExitCode
from paddle_node.environment import NodeEnvironment
from paddle_node.failure import Failure
from paddle_node.patience import REMIND, patiently

T = TypeVar("T")


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


async def ask(question: Callable[[], T], node: NodeEnvironment, say: Callable[[str], None], patience: float = 0.0) -> T:
    """What the volume answers to a question that may itself wait for `patience` seconds. Raises `Failure` where it hangs."""
    began = time.monotonic()
    waited, pause, deadline = 0.0, patience + REMIND, patience + node.peer_deadline
    answer = asyncio.ensure_future(call(lambda: patiently(question, say)))
    try:
        while True:
            await asyncio.wait({answer}, timeout=min(pause, deadline - waited))
            if answer.done():
                return answer.result()
            waited, pause = time.monotonic() - began, REMIND
            sentence = f"{node.folder.run_state} has not answered for {waited:.0f} s"
            if waited >= deadline:
                raise Failure(ExitCode.CANNOT_END, f"{sentence}: nothing can be read there")
            say(sentence)
    finally:
        answer.cancel()
