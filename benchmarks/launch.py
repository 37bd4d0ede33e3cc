"""A command under runtime launch against bare `paddle.distributed.launch`: the same program, data
and number of processes.

    python benchmarks/launch.py [--rounds 4] [--epochs 60]

Both train examples/launch in turn, each first as often as second: one pod of two processes, and the
launcher with two. Speed is epochs a second from the first saved one to the last, by the files'
times, so that start-up counts on neither side. Target: 0.98. Beside it the processor's seconds of
each side, agent and start-up included: they say more on a busy machine. Target of what one epoch
more costs: 1.02.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT / "tests/fleet"))
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


def processor() -> float:
    """Returns the processor seconds of all that has ended below this process."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def speed(output: Path) -> float:
    saved = sorted(path.stat().st_mtime for path in output.glob("epoch-*.pdparams"))
    return (len(saved) - 1) / (saved[-1] - saved[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "data").mkdir()
        sample = place / "data/sample.csv"
        subprocess.run(
            [sys.executable, PROJECT / "examples/launch/make_sample.py", sample], check=True
        )
        ratios, costs = [], []
        for number in range(options.rounds):
            sides = {"supervised": supervised, "bare": bare}
            speeds: dict[str, float] = {}
            spent = dict.fromkeys(sides, 0.0)
            for name in sorted(sides, reverse=number % 2 == 1):
                for epochs in (options.epochs, 2):
                    round_place = place / f"{name}-{number}-{epochs}"
                    if name == "supervised":
                        round_place.mkdir()
                    before = processor()
                    arguments = ["--data", str(place / "data"), "--epochs", str(epochs)]
                    reached = sides[name](round_place, arguments)
                    used = processor() - before
                    spent[name] += used if epochs > 2 else -used
                    speeds.setdefault(name, reached)
            ratios.append(speeds["supervised"] / speeds["bare"])
            costs.append(spent["supervised"] / spent["bare"])
            print(
                {name: round(value, 2) for name, value in speeds.items()},
                f"ratio {ratios[-1]:.3f}, processor {costs[-1]:.3f}",
                flush=True,
            )
    print(
        f"supervised against bare: {statistics.median(ratios):.3f}, processor "
        f"{statistics.median(costs):.3f} (medians of {options.rounds}), "
        f"load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
