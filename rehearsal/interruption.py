"""Ctrl-C, SIGTERM and a closed terminal end a rehearsal once, in order: the second one cannot break the clean-up.

While `caught()` lasts, the first such signal raises KeyboardInterrupt in the main thread (or cancels what `run()` runs) and every
later one is ignored, also afterwards: the process is on its way out, and must leave with its own code.
"""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def caught() -> Iterator[None]:
    """Handle the signals for as long as the block lasts."""
    after: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    _handle(_first)
    try:
        yield
    except KeyboardInterrupt:
        after = dict.fromkeys(_SIGNALS, signal.SIG_IGN)
        raise
    finally:
        for number, handler in after.items():
            signal.signal(number, handler)


def run(work: Coroutine[Any, Any, T]) -> T:
    """asyncio.run() that a signal cancels; raises KeyboardInterrupt after the cancelled work has cleaned up."""
    signals: list[int] = []

    async def main() -> T:
        task = asyncio.ensure_future(work)
        while not (task.done() or signals):
            await asyncio.wait([task], timeout=0.1)
        if signals:
            task.cancel()
        return await task

    try:
        # Never by raising: asyncio may be making its loop, or closing it.
        _handle(lambda number, frame: signals.append(number))
        result = asyncio.run(main())
    except (asyncio.CancelledError, KeyboardInterrupt):
        signals.append(signal.SIGINT)
    finally:
        _handle(signal.SIG_IGN if signals else _first)
        # Nothing where it ran; else Python would say that nobody awaited it.
        work.close()
    if signals:
        raise KeyboardInterrupt
    return result


def _handle(handler: Any) -> None:
    for number in _SIGNALS:
        # What `nohup` has put aside stays so.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _first(number: int, frame: FrameType | None) -> None:
    _handle(signal.SIG_IGN)
    raise KeyboardInterrupt
