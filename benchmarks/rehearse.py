"""How long a change of a command takes to its first step: the fast lane beside the whole loop.

Each run of examples/launch is timed from the command to the start of the training's processes,
which is the platform's own part, and to the first step of the program. The lanes take turns. With
--busy, that many processes keep the cores busy meanwhile.

    python benchmarks/rehearse.py [--rounds 3] [--busy 2]
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from paddle_node.volume.job_folder import JobFolder

PROJECT = Path(__file__).resolve().parents[1]
JOB = PROJECT / "examples" / "launch" / "job.yaml"
LANES = {
    "paddle-aws rehearse": ("-P", "-m", "paddle_aws.operations.main", "rehearse", str(JOB)),
    "make rehearse": ("-m", "paddle_aws.rehearsal", "--job", str(JOB)),
}


def time_once(words: tuple[str, ...], folder: Path) -> tuple[float, float]:
    """Returns the seconds until the processes start, and until the first step."""
    volume = JobFolder(folder / ".rehearsal" / "volume" / "launch")
    began = time.time()
    with subprocess.Popen(
        [sys.executable, *words], cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        while not volume.steps(0, 0).exists() and process.poll() is None:
            time.sleep(0.02)
        first = json.loads(volume.steps(0, 0).read_text().splitlines()[0])["time"]
        attempts = json.loads((volume.run_state / "attempts.json").read_text())["attempts"]
        os.kill(process.pid, signal.SIGINT)
        process.communicate()
    return attempts[0]["started"] - began, first - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", type=int, default=0)
    options = parser.parse_args()
    loop = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(loop) for _ in range(options.busy)]
    times: dict[str, list[tuple[float, float]]] = {lane: [] for lane in LANES}
    try:
        for _ in range(options.rounds):
            for lane, words in LANES.items():
                with tempfile.TemporaryDirectory() as name:
                    times[lane].append(time_once(words, Path(name)))
    finally:
        for process in busy:
            process.kill()
    print(f"{'':22}{'processes start':>16}{'first step':>12}   median of {options.rounds}, s")
    medians = {}
    for lane, rows in times.items():
        medians[lane] = [statistics.median(column) for column in zip(*rows, strict=True)]
        print(f"{lane:22}{medians[lane][0]:16.1f}{medians[lane][1]:12.1f}")
    fast, whole = medians.values()
    print(
        f"fast / whole: {fast[0] / whole[0]:.2f} to the processes, {fast[1] / whole[1]:.2f} to the "
        f"first step; {options.busy} busy processes, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
