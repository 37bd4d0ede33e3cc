"""Several transfers at once.

Promises: results in the order of what was given; after the first failure, or Ctrl-C, nothing more is begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from threading import Event
from typing import TypeVar

AT_ONCE = 8

Given = TypeVar("Given")
Made = TypeVar("Made")


def side_by_side(act: Callable[[Given], Made], given: Iterable[Given], stop: Event | None = None) -> list[Made]:
    """`act` on each; raises what the first of them raises, and sets `stop` for those that are under way."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            begun = [pool.submit(act, one) for one in given]
            for ended in wait(begun, return_when=FIRST_EXCEPTION).done:
                ended.result()
            return [each.result() for each in begun]
        except BaseException:
            if stop is not None:
                stop.set()
            pool.shutdown(cancel_futures=True)
            raise
