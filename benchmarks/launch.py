"""A command under runtime launch against bare `paddle.distributed.launch`: the same program, data
and number of processes.

    python benchmarks/launch.py [--rounds 4] [--epochs 250]

Both train examples/launch in turn, each first as often as second: one pod of two processes, and the
launcher with two. Speed is epochs a second from the first saved one to the last, by the files'
times, so that start-up counts on neither side. Target: 0.98. A busy machine changes it, and even
the processor's seconds of two runs; so the agent's own seconds between those epochs are set against
the program's in the same run. Target of what it adds: 1.02.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(PROJECT / "tests/fleet"), str(PROJECT / "trainer_image")]
from paddle_node.agent import process_table  # noqa: E402
from training_job import PADDLE, TrainingJob  # noqa: E402

LINE = ("python", "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "train.py")


def supervised(place: Path, arguments: list[str]) -> float:
    words = [*LINE, *arguments]
    with TrainingJob(
        place, "launch", 1, RUNTIME="launch", COMMAND=json.dumps(words), PROCESSES="2"
    ) as job:
        job.split(Path(arguments[1]) / "sample.csv", hold_out=0)
        job.run()
    return speed(job.folder.output)


def bare(place: Path, arguments: list[str]) -> float:
    place.mkdir()
    environ = {
        "PATH": f"{PADDLE.parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "PADDLE_DISTRI_BACKEND": "gloo",
    }
    words = [*LINE[:-1], str(PROJECT / "examples/launch/train.py"), *arguments]
    subprocess.run(
        [str(PADDLE), *words[1:]], cwd=place, env=environ, check=True, capture_output=True
    )
    return speed(place / "output")


class Meter(threading.Thread):
    """The processor seconds of the processes below this one while a run saves its epochs: those of
    the launcher and below, and those above it.
    """

    def __init__(self, output: Path) -> None:
        super().__init__(daemon=True)
        self._output = output
        self._done = threading.Event()
        self._first: dict[tuple[int, bool], float] = {}
        self._last: dict[tuple[int, bool], float] = {}

    def __enter__(self) -> "Meter":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        while not self._done.wait(0.2):
            saved = any(self._output.rglob("epoch-*.pdparams"))
            seconds = self._read() if saved else {}
            if any(program for _, program in seconds):
                self._first = self._first or seconds
                self._last |= seconds  # Some have ended.

    @staticmethod
    def _read() -> dict[tuple[int, bool], float]:
        seconds = {}
        for entry in process_table.descendants(os.getpid()):
            if entry.state in "ZX":
                continue  # It has no command line any more.
            try:
                words = process_table.read_list(entry.pid, "cmdline")
                stat = Path(f"/proc/{entry.pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ticks = int(stat[11]) + int(stat[12])
            program = any(word.endswith("train.py") for word in words)
            seconds[entry.pid, program] = ticks / os.sysconf("SC_CLK_TCK")
        return seconds

    def spent(self, program: bool) -> float:
        return sum(
            seconds - self._first.get(key, 0.0)
            for key, seconds in self._last.items()
            if key[1] is program
        )


def speed(output: Path) -> float:
    saved = sorted(path.stat().st_mtime for path in output.glob("epoch-*.pdparams"))
    return (len(saved) - 1) / (saved[-1] - saved[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=250)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "data").mkdir()
        sample = place / "data/sample.csv"
        subprocess.run(
            [sys.executable, PROJECT / "examples/launch/make_sample.py", sample], check=True
        )
        ratios, pairs, added = [], [], []
        for number in range(options.rounds):
            sides = {"supervised": supervised, "bare": bare}
            speeds: dict[str, float] = {}
            epochs: dict[str, float] = {}
            for name in sorted(sides, reverse=number % 2 == 1):
                round_place = place / f"{name}-{number}"
                if name == "supervised":
                    round_place.mkdir()
                arguments = ["--data", str(place / "data"), "--epochs", str(options.epochs)]
                with Meter(round_place) as meter:
                    speeds[name] = sides[name](round_place, arguments)
                epochs[name] = meter.spent(program=True)
                if name == "supervised":
                    added.append(1 + meter.spent(program=False) / epochs[name])
                    epochs[name] *= added[-1]
            ratios.append(speeds["supervised"] / speeds["bare"])
            pairs.append(epochs["supervised"] / epochs["bare"])
            print(
                {name: round(value, 2) for name, value in speeds.items()},
                f"speed {ratios[-1]:.3f}, processor {pairs[-1]:.3f}, agent {added[-1]:.4f}",
                flush=True,
            )
    print(
        f"supervised against bare: speed {statistics.median(ratios):.3f}, processor "
        f"{statistics.median(pairs):.3f}, agent in its own run {statistics.median(added):.4f} "
        f"(medians of {options.rounds}), load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
