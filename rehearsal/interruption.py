"""Ctrl-C, SIGTERM and a closed terminal end a rehearsal once, in order: the second one cannot break the clean-up.

Promises: while `caught()` lasts, the first such signal raises KeyboardInterrupt in the main thread (or cancels what
`run()` runs) and every later one is ignored, so that all `with` blocks leave as they should. After an interruption
they stay ignored: the process is on its way out, and must leave with its own code.
"""

from __future__ import annotations

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
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    _listen()
    try:
        yield
    except KeyboardInterrupt:
        _ignore()
        raise
    except BaseException:
        _restore(before)
        raise
    else:
        _restore(before)


def run(work: Coroutine[Any, Any, T]) -> T:
    """asyncio.run() that a signal cancels; raises KeyboardInterrupt after the cancelled work has cleaned up."""
    interrupted = False

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None

        def once() -> None:
            nonlocal interrupted
            if not interrupted:
                interrupted = True
                task.cancel()

        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, once)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        _ignore() if interrupted else _listen()


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _listen() -> None:
    for number in _SIGNALS:
        signal.signal(number, _first)


def _ignore() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _first(number: int, frame: FrameType | None) -> None:
    _ignore()
    raise KeyboardInterrupt
