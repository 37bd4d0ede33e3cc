"""Runs half of an index's work in a second process, because a Python process uses only one
processor.

The output depends on the source and the settings, not on the machine. When either process dies,
both end.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

from paddle_node.failure import Failure
from paddle_node.volume.data_manifest import DataFile

LANES = 2
"""Fixed, rather than the machine's number of processors, so that the same settings give the same
bytes everywhere.
"""
SECOND_LANE_BYTES = 32 << 20
"""Bytes of the source from which a second process pays off."""
_PR_SET_PDEATHSIG = 1
_lanes: list[Callable[[], "LaneResult"]] = []
"""In the second process: its only lane, inherited because it cannot be sent there."""

Files = dict[str, list[DataFile]]
Advance = Callable[[int], None]
"""Called with the number of bytes written so far."""


@dataclass(frozen=True)
class LaneResult:
    """The files that a lane wrote, how many records it read, and how many of them it held out."""

    files: Files = field(default_factory=dict)
    taken: int = 0
    held: int = 0


@contextlib.contextmanager
def run_second_lane(lane: Callable[[], LaneResult] | None) -> Iterator[Future[LaneResult]]:
    """Runs `lane`, if any, in a separate process, which ends with the `with` block. Raises
    `Failure` if the process dies.
    """
    if lane is None:
        nothing: Future[LaneResult] = Future()
        nothing.set_result(LaneResult())
        yield nothing
        return
    sys.stdout.flush()
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("fork"), _begin, (lane, os.getpid())
    ) as process:
        try:
            yield process.submit(_deal)
        except BaseException as error:
            for child in multiprocessing.active_children():
                child.kill()
            if isinstance(error, BrokenProcessPool):
                raise Failure(
                    1, "a process of the data job died, perhaps because memory ran out: run again"
                ) from None
            raise


def _begin(lane: Callable[[], LaneResult], parent: int) -> None:
    _lanes.append(lane)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _deal() -> LaneResult:
    return _lanes[0]()
