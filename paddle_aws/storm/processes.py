"""Processes below a container: their numbers, their environments, and signals to only them."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path


def ancestors(pid: int) -> list[int]:
    """Returns the processes above a process, the nearest first; none of one that has ended."""
    above: list[int] = []
    with suppress(OSError):
        while pid > 1:
            stat = Path(f"/proc/{pid}/stat").read_text()
            pid = int(stat.rpartition(")")[2].split()[1])
            above.append(pid)
    return above


def signal_processes(
    pids: Sequence[int], init: int, number: signal.Signals, stack: ExitStack | None = None
) -> list[int]:
    """Signals processes only if they are below the container's `init`: a number may belong to
    another process by now. With `stack`, returns the processes' file descriptors, which it closes.
    """
    processes = []
    with ExitStack() as closing:
        for pid in pids:
            with suppress(ProcessLookupError):
                process = os.pidfd_open(pid)
                (stack or closing).callback(os.close, process)
                if init in ancestors(pid):
                    send_signal(process, number)
                    processes.append(process)
    return processes


def sockets(pid: int) -> list[int]:
    """Returns the numbers of a process's open sockets. Raises OSError."""
    numbers = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if str(entry.readlink()).startswith("socket:"):
                numbers.append(int(entry.name))
    return numbers


def send_signal(process: int, number: signal.Signals) -> None:
    """Signals a process by its file descriptor, if it still runs."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, number)


def launched_rank(pid: int) -> int | None:
    """Returns the rank that a launcher gave a process; None: it gave none."""
    variables = variables_of(pid)
    rank = variables.get(b"PADDLE_TRAINER_ID", variables.get(b"RANK", b""))
    return int(rank) if rank.isdigit() else None


def variables_of(pid: int) -> dict[bytes, bytes]:
    """Returns the environment that a process began with."""
    with suppress(OSError):
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)
    return {}


def children(pid: int) -> list[int]:
    """Returns the processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descendants(pid: int) -> Iterator[int]:
    """Yields the processes below a process."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from descendants(child)
