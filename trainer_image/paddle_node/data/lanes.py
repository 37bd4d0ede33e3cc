"""Half of an index's work in a second process, because Python runs on one processor only.

What is written depends on the source and the settings, not on the machine. The end of either process ends both.
"""

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from paddle_node.data.data_manifest import DataFile
from paddle_node.failure import Failure

LANES = 2
"""Not the machine's number of processors, so that the same settings give the same bytes everywhere."""
WORTH = 32 << 20
"""Bytes of the source from which a second process pays."""

Files = dict[str, list[DataFile]]
Advance = Callable[[int], None]
"""Called with the number of bytes just written."""


@dataclass(frozen=True)
class Dealt:
    """What a lane has written, how many records it read, and how many of them it holds out."""

    files: Files
    taken: int
    held: int


class SecondLane:
    """A lane in a process of its own, which ends with the `with` block."""

    def __init__(self, lane: Callable[[Advance], Dealt]) -> None:
        sys.stdout.flush()
        fork = multiprocessing.get_context("fork")
        self._end, theirs = fork.Pipe(duplex=False)
        self._process = fork.Process(target=_child, args=(lane, theirs, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()
        self._answer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def check(self) -> None:
        """Raises the error of a lane that has failed by now."""
        if not self._answer and self._end.poll():
            self.result()

    def result(self) -> Dealt:
        """Waits for the lane; raises what it raised."""
        try:
            self._answer = self._answer or self._end.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            raise Failure(1, f"a process of the data job died (exit code {self._process.exitcode}): run again") from None
        if not isinstance(self._answer, Dealt):
            raise self._answer
        return self._answer


def _child(lane: Callable[[Advance], Dealt], end: Any, parent: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def advance(count: int) -> None:
        if os.getppid() != parent:
            os._exit(1)  # The parent was killed.

    try:
        end.send(lane(advance))
    except (Failure, OSError) as error:
        end.send(error)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
