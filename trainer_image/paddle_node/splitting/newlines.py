"""How many newlines a block has, at the memory's speed.

Promises: `counter` gives a function that several threads may use at once. With numpy (the image has it, as Paddle needs
it) a block costs a quarter of what `bytes.count` takes, and threads do not wait for each other; its import costs
0.1 s, which small data does not earn back.
"""

from __future__ import annotations

from collections.abc import Callable

WORTH_NUMPY = 64 << 20
"""Bytes from which the faster way pays."""


def counter(size: int) -> Callable[[bytearray, int], int]:
    """For `size` bytes in all: a function of a buffer and how much of it is filled."""
    if size >= WORTH_NUMPY:
        try:
            import numpy
        except ImportError:
            pass
        else:
            return lambda buffer, filled: int(numpy.count_nonzero(numpy.frombuffer(buffer, numpy.uint8, filled) == 10))
    return lambda buffer, filled: buffer.count(b"\n", 0, filled)
