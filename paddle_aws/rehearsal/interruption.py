"""Ctrl-C, SIGTERM and a closed terminal end a rehearsal in order: the first signal starts the
clean-up, and a second one cannot break it.

Inside `catch_signals()`, the first such signal raises KeyboardInterrupt in the main thread, or
cancels the work of `run()`. Every later one is ignored, even after the block: the process is
already exiting and must exit with its own code.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from paddle_aws.operations.errors import Exit

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_command(main: Callable[[], None]) -> None:
    """Runs a command's `main`, whose interruption ends this process with its own exit code."""
    try:
        main()
    except SystemExit as exit_:
        if exit_.code != Exit.INTERRUPTED:
            raise
        # If an interrupt passed through a library's exec(), Python kills itself with SIGINT as it
        # exits, although we caught the interrupt. All is cleaned up by now: exit directly.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(Exit.INTERRUPTED)


@contextmanager
def catch_signals() -> Iterator[None]:
    """Handles the signals inside the block."""
    restored: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    _handle(_interrupt)
    try:
        yield
    except KeyboardInterrupt:
        restored = dict.fromkeys(_SIGNALS, signal.SIG_IGN)
        raise
    finally:
        for number, handler in restored.items():
            signal.signal(number, handler)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` like asyncio.run(); a signal cancels it. Raises KeyboardInterrupt after the
    cancelled work has cleaned up.
    """
    signals: list[int] = []

    async def main() -> T:
        task = asyncio.ensure_future(work)
        while not (task.done() or signals):
            await asyncio.wait([task], timeout=0.1)
        if signals:
            task.cancel()
        return await task

    try:
        # The handler never raises: asyncio may be creating or closing its loop.
        _handle(lambda number, frame: signals.append(number))
        result = asyncio.run(main())
    except (asyncio.CancelledError, KeyboardInterrupt):
        signals.append(signal.SIGINT)
    finally:
        _handle(signal.SIG_IGN if signals else _interrupt)
        # Has no effect if it ran; otherwise it prevents Python's warning that nobody awaited it.
        work.close()
    if signals:
        raise KeyboardInterrupt
    return result


def _handle(handler: Any) -> None:
    for number in _SIGNALS:
        # A SIGHUP that `nohup` ignores stays ignored.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _handle(signal.SIG_IGN)
    raise KeyboardInterrupt
