"""One index's work in up to `LANES` processes, as Python runs on one processor only.

Promises: what is written depends on the source and the settings, not on the machine; no process survives the one that
began it for longer than a block takes; what ends a lane ends the whole, as if there were one process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from paddle_node.data_manifest import DataFile
from paddle_node.failure import Failure

LANES = 2
"""Not the machine's number of processors: the same settings give the same bytes everywhere. Two lanes deal in opposite
directions, so that the shards' counts differ by 1 at most after both."""
WORTH = 32 << 20
"""Bytes of the source from which a second process pays."""

Files = dict[str, list[DataFile]]


@dataclass(frozen=True)
class Counts:
    """What a lane has taken in, held out, and not yet dealt."""

    taken: int
    held: int
    rest: int


Answer = int
"""How many of the rest to hold out."""
Lane = Generator[int | Counts, Answer | None, Files]
"""Yields bytes written, then its counts once; is sent the answer; returns its files."""


def run(lanes: Sequence[Lane], answer: Callable[[Sequence[Counts]], Sequence[Answer]], progress: Callable[[int], None]) -> Files:
    """The files of all lanes. Raises what a lane raises."""
    files = [_alone(lanes[0], answer, progress)] if len(lanes) == 1 else _together(lanes, answer, progress)
    together: Files = {}
    for each in files:
        for folder, found in each.items():
            together.setdefault(folder, []).extend(found)
    return together


def _alone(lane: Lane, answer: Callable[[Sequence[Counts]], Sequence[Answer]], progress: Callable[[int], None]) -> Files:
    reply: Answer | None = None
    while True:
        try:
            said = lane.send(reply)
        except StopIteration as end:
            files: Files = end.value
            return files
        reply = None
        if isinstance(said, Counts):
            (reply,) = answer([said])
        else:
            progress(said)


def _together(
    lanes: Sequence[Lane], answer: Callable[[Sequence[Counts]], Sequence[Answer]], progress: Callable[[int], None]
) -> list[Files]:
    fork = multiprocessing.get_context("fork")
    ends: list[Connection] = []
    processes: list[BaseProcess] = []
    counts: dict[int, Counts] = {}
    files: dict[int, Files] = {}
    sys.stdout.flush()
    try:
        for lane in lanes:
            ours, theirs = fork.Pipe()
            process: BaseProcess = fork.Process(target=_child, args=(lane, theirs, [*ends, ours]), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            ends.append(ours)
        while len(files) < len(lanes):
            for end in wait([end for at, end in enumerate(ends) if at not in files]):
                at = ends.index(end)  # type: ignore[arg-type]
                try:
                    said = ends[at].recv()
                except (EOFError, ConnectionError):
                    processes[at].join()
                    raise Failure(1, f"a process of the data job died (exit code {processes[at].exitcode}): run again") from None
                if isinstance(said, OSError):
                    raise said
                if isinstance(said, tuple):
                    raise Failure(*said)
                if isinstance(said, dict):
                    files[at] = said
                elif isinstance(said, Counts):
                    counts[at] = said
                    if len(counts) == len(lanes):
                        for other, reply in zip(ends, answer([counts[number] for number in range(len(lanes))]), strict=True):
                            other.send(reply)
                else:
                    progress(said)
        return [files[number] for number in range(len(lanes))]
    finally:
        for process in processes:
            process.kill()
            process.join()


def _child(lane: Lane, end: Connection, others: Sequence[Connection]) -> None:
    """Ends when nobody listens any more: its next word fails."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in others:
        other.close()
    try:

        def ask(counts: Sequence[Counts]) -> Sequence[Answer]:
            end.send(counts[0])
            return [int(end.recv())]

        end.send(_alone(lane, ask, end.send))
    except Failure as failure:
        end.send((failure.code, failure.sentence))
    except (BrokenPipeError, EOFError):
        pass
    except OSError as error:
        end.send(OSError(error.errno, error.strerror or str(error), error.filename))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
