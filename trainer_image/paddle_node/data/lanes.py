"""Half of an index's work in a second process, as Python runs on one processor only.

Promises: what is written depends on the source and the settings, not on the machine; what ends the process ends the whole.
"""

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Self

from paddle_node.data.data_manifest import DataFile
from paddle_node.failure import Failure

LANES = 2
"""Not the machine's number of processors: the same settings give the same bytes everywhere. Two lanes deal in opposite
directions, so that the shards' counts differ by 1 at most after both."""
WORTH = 32 << 20
"""Bytes of the source from which a second process pays."""

Files = dict[str, list[DataFile]]
Advance = Callable[[int], None]
"""Is told of bytes written."""


@dataclass(frozen=True)
class Dealt:
    """What a lane has written, the records that it has taken in, and how many of them it holds out."""

    files: Files
    taken: int
    held: int


class Beside:
    """A lane in a process of its own, which ends with the `with` block."""

    def __init__(self, lane: Callable[[Advance], Dealt]) -> None:
        sys.stdout.flush()
        fork = multiprocessing.get_context("fork")
        self._end, theirs = fork.Pipe(duplex=False)
        self._process = fork.Process(target=_child, args=(lane, theirs, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()
        self._told: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def check(self) -> None:
        """Raises what has ended the lane by now."""
        if not self._told and self._end.poll():
            self.result()

    def result(self) -> Dealt:
        """Waits for it; raises what the lane raises."""
        try:
            self._told = self._told or self._end.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            raise Failure(1, f"a process of the data job died (exit code {self._process.exitcode}): run again") from None
        if not isinstance(self._told, Dealt):
            raise self._told
        return self._told


def _child(lane: Callable[[Advance], Dealt], end: Connection, parent: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def advance(count: int) -> None:
        if os.getppid() != parent:
            os._exit(1)  # Nobody waits for it any more.

    try:
        end.send(lane(advance))
    except (Failure, OSError) as error:
        end.send(error)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
