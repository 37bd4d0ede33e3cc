"""What a test does to the small machine's server and to its clients' networks."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SERVER = Path(__file__).with_name("server")
GRACE = 10.0
"""Seconds that the restarted server waits for its clients to claim what they held; the least it takes."""


class Volume:
    """A folder of the server as three nodes see it: each mount has a memory of its own."""

    def __init__(self, name: str) -> None:
        self.a, self.b, self.c = (Path("/run/volume") / client / name for client in "abc")
        self.served = Path("/run/served") / name
        """The same as the server sees it."""


@contextmanager
def cut_off(client: str) -> Iterator[None]:
    """The client's cable is pulled."""
    subprocess.run(["ip", "link", "set", f"to-{client}", "down"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "set", f"to-{client}", "up"], check=True)


@contextmanager
def slow_answers(client: str, seconds: float) -> Iterator[None]:
    """What the client asks arrives and is done at once; the answers come so many seconds later."""
    subprocess.run(["tc", "qdisc", "add", "dev", f"to-{client}", "root", "netem", "delay", f"{seconds}s"], check=True)
    try:
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", f"to-{client}", "root"], check=True)


@contextmanager
def server_down() -> Iterator[None]:
    """Afterwards it gives its clients `GRACE` seconds, or until the last one of them has come back, to claim what they held."""
    subprocess.run([SERVER, "stop"], check=True)
    try:
        yield
    finally:
        subprocess.run([SERVER, "start"], check=True)


def at_once(*works: Callable[[], T]) -> list[Future[T]]:
    """Begun together, each in a thread of its own; to their ends."""
    start = threading.Barrier(len(works))

    def one(work: Callable[[], T]) -> T:
        start.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [pool.submit(one, work) for work in works]


def until(condition: Callable[[], object], seconds: float = 60.0) -> float:
    """How long it took; asked often."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, f"not so within {seconds:g} s"
        time.sleep(0.02)
    return time.monotonic() - start
