"""Blocking calls beside the event loop: name look-ups, and a volume that may answer late.

Promises: `call` never holds up the loop, and a call that never returns never holds up the exit (asyncio's own
executor would be waited for).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def call(function: Callable[[], T]) -> T:
    """What `function` returns or raises, computed in a thread of its own that dies with the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = function()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(deliver, result, failure)

    threading.Thread(target=work, name=getattr(function, "__name__", "call"), daemon=True).start()
    return await future
