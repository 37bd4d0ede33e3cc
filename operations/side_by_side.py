"""Several transfers at once.

Promises: results in the order of what was given; after the first failure, or Ctrl-C, nothing more is begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

AT_ONCE = 8

Given = TypeVar("Given")
Made = TypeVar("Made")


def side_by_side(act: Callable[[Given], Made], given: Iterable[Given]) -> list[Made]:
    """`act` on each; raises what the first of them raises."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            return list(pool.map(act, given))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
