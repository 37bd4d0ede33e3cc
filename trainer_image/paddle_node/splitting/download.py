"""A download that survives cut connections, failing servers and its own process.

Promises: `to` ends up as the object's bytes, exactly `size` of them where the size is known; what arrived before an
interruption is not asked for again; every wait between tries is bounded, and after `TRIES` tries without one new
byte a `Failure` (SOURCE_UNREACHABLE) says what happened last.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from paddle_node.contract import ExitCode
from paddle_node.failure import Failure

TRIES = 6
FIRST_WAIT = 0.5
"""Seconds before the second try; doubled for each further one."""
BLOCK = 1 << 20
DURABLE = 64 << 20
"""Bytes between two fsyncs. Another process continues only at such a border: what lies behind it may never have
reached the disk."""


class Interrupted(Exception):
    """The try ended early for a reason that another try may cure."""


class Stream(Protocol):
    """The body of an answer."""

    def read(self, amount: int, /) -> bytes:
        """Up to `amount` bytes, b"" at the end; raises `Interrupted`."""

    def close(self) -> None:
        """Gives the connection back."""


def download(
    what: str,
    size: int | None,
    to: Path,
    open_at: Callable[[int], tuple[int, Stream]],
    advance: Callable[[int], None],
) -> None:
    """`open_at(offset)` asks from `offset` on; it returns where the answer really begins (`offset`, or before it) and its body.

    Raises `Failure`; OSError from the volume.
    """
    partial = to.with_name(f"{to.name}.partial")
    have = partial.stat().st_size // DURABLE * DURABLE if partial.exists() else 0
    if size is not None:
        have = min(have, size)
    with partial.open("r+b" if partial.exists() else "w+b") as stream:
        stream.truncate(have)
        advance(have)
        tries, durable = 0, have
        while size is None or have < size:
            before = have
            try:
                start, body = open_at(have)
                try:
                    if start > have:
                        raise Interrupted(f"it answered from byte {start} on instead of {have}")
                    if start != have:  # The server does not know ranges: from the beginning again.
                        advance(start - have)
                        stream.truncate(start)
                        have = before = durable = start
                    stream.seek(have)
                    while block := body.read(BLOCK):
                        stream.write(block)
                        have += len(block)
                        advance(len(block))
                        if have - durable >= DURABLE:
                            stream.flush()
                            os.fsync(stream.fileno())
                            durable = have
                finally:
                    body.close()
                    stream.flush()
                if size is None:
                    break
                if have > size:
                    raise Failure(
                        ExitCode.BAD_DATA, f"{what} has more than the {size} bytes that were announced: is it being changed?"
                    )
                if have < size:
                    raise Interrupted(f"it ended after {have} of {size} bytes")
            except Interrupted as error:
                tries = 1 if have > before else tries + 1
                if tries >= TRIES:
                    raise Failure(
                        ExitCode.SOURCE_UNREACHABLE,
                        f"{what} cannot be read after {TRIES} tries: {error}; what arrived is kept for the next run",
                    ) from None
                time.sleep(FIRST_WAIT * 2 ** (tries - 1))
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(to)
