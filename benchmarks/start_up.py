"""Time from a pod's start to its first batch: three real pods, real Paddle, quick_start.

    python benchmarks/start_up.py [--runs 3]

Two pods wait; the clock starts with the third. "rendezvous" ends when all three agents have been
told to start, "pservers" when all three pservers accept connections (what the last pod imports and
what the trainers agree on lies in between), "first batch" when every trainer has trained one. The
median of each is printed. Meant for a machine that does nothing else: Paddle's import is a second
of processor time, and takes as many seconds as the others leave it.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(PROJECT / "tests/fleet"), str(PROJECT / "trainer_image")]

from training_job import TrainingJob  # noqa: E402

WARM = 8.0
"""Seconds for the two waiting pods to import Paddle."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    runs = [run() for _ in range(options.runs)]
    print(
        f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores, median of {options.runs}; "
        "seconds after the last pod's start"
    )
    for mark in runs[0]:
        print(f"  {mark:<55} {statistics.median(marks[mark] for marks in runs):6.2f}")


def run() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as place, TrainingJob(Path(place), PASSES="1") as pods:
        pods.split(pods.make_sample("--lines", "3000"))
        pods.start(0, 1)
        time.sleep(WARM)
        began, clock = time.monotonic(), time.time()
        pods.start(2)
        for index in range(3):
            pods.wait_for(index, "trainer . is process")
        marks = {"rendezvous": time.monotonic() - began}
        while not all(listens(pods.address(index), pods.port) for index in range(3)):
            time.sleep(0.01)
        marks["pservers"] = time.monotonic() - began
        pods.end_with()
        # The first line of a rank's metrics is its first step.
        first = [
            json.loads(pods.folder.steps(index, index).read_text().splitlines()[0])
            for index in range(3)
        ]
        return marks | {"first batch": max(step["time"] for step in first) - clock}


def listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
