"""Faults that a test causes in the small machine's server and in its clients' networks."""

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
"""Seconds that the restarted server waits for its clients to reclaim their state; the least that it
accepts.
"""


class Volume:
    """A folder of the server as three nodes see it: each mount has its own cache."""

    def __init__(self, name: str) -> None:
        self.a, self.b, self.c = (Path("/run/volume") / client / name for client in "abc")
        self.served = Path("/run/served") / name
        """The same folder as the server sees it."""


@contextmanager
def cut_off(client: str) -> Iterator[None]:
    """Pulls the client's cable."""
    subprocess.run(["ip", "link", "set", f"to-{client}", "down"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "set", f"to-{client}", "up"], check=True)


@contextmanager
def slow_answers(client: str, seconds: float) -> Iterator[None]:
    """The client's requests arrive and take effect at once; the answers come `seconds` later."""
    subprocess.run(
        ["tc", "qdisc", "add", "dev", f"to-{client}", "root", "netem", "delay", f"{seconds}s"],
        check=True,
    )
    try:
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", f"to-{client}", "root"], check=True)


@contextmanager
def server_down() -> Iterator[None]:
    """Stops the server. Once restarted, it lets clients reclaim their state for `GRACE` seconds or
    until all have come back.
    """
    subprocess.run([SERVER, "stop"], check=True)
    try:
        yield
    finally:
        subprocess.run([SERVER, "start"], check=True)


def at_once(*works: Callable[[], T]) -> list[Future[T]]:
    """Starts all works together, each in its own thread, and waits until they have ended."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], T]) -> T:
        start.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [pool.submit(run, work) for work in works]


def until(condition: Callable[[], object], seconds: float = 60.0) -> float:
    """Polls until `condition` holds. Returns the seconds that this took."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, f"not so within {seconds:g} s"
        time.sleep(0.02)
    return time.monotonic() - start
