"""Training under the agent against bare Paddle processes, and how long a pod takes to its first
batch.

Both train quick_start on the same shards with as many processes, in turn in one run, each first as
often as second. Both parse and feed the same records, pull once a step and save once a pass;
records a second are counted from first to last batch of each pass, saves left out on both sides,
the median of the passes; the first pass warms up. Each bare process has a session of its own, as
the agent's children have: Linux shares processors out by session (autogroup) as it does by
container, and six processes in one session wake each other with fewer switches than any pods could.
On a machine that others use as well the clock says little about either: so the trainers' processor
time a record is compared, too. Target: at least 0.98.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT / "tests/fleet"))
from training_job import PADDLE, TrainingJob  # noqa: E402


def supervised(place, options, lines):
    with TrainingJob(place, pods=options.pods, PASSES=str(options.passes)) as job:
        job.split(job.make_sample("--lines", str(lines)))
        began = time.time()
        job.run()
    metrics = [job.metrics(trainer) for trainer in range(options.pods)]
    first = [
        job.folder.steps(trainer, trainer).read_text().splitlines()[0]
        for trainer in range(options.pods)
    ]
    return job, Speed.of(metrics), [json.loads(line)["time"] - began for line in first]


def bare(place, options, shards, vocabulary):
    place.mkdir()
    number = os.getpid() % 200 + 1
    addresses = [f"127.240.{number}.{index + 1}" for index in range(options.pods)]
    base = {
        **os.environ,
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(f"{address}:7164" for address in addresses),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(f"{address}:7165" for address in addresses),
        "PADDLE_TRAINERS_NUM": str(options.pods),
        "FLAGS_LAUNCH_BARRIER": "0",
        "OMP_NUM_THREADS": "1",
    }
    processes, logs = [], []
    for role, port in (("PSERVER", "7164"), ("TRAINER", "7165")):
        for index, address in enumerate(addresses):
            mine = {"TRAINING_ROLE": role, "POD_IP": address, "PADDLE_PORT": port}
            if role == "TRAINER":
                mine["PADDLE_TRAINER_ID"] = str(index)
            log = place / f"{role}-{index}.log"
            command = [
                PADDLE,
                PROJECT / "benchmarks/bare_paddle/train.py",
                shards(index),
                vocabulary,
                place,
                str(options.passes),
            ]
            with log.open("w") as stream:
                processes.append(
                    subprocess.Popen(
                        command,
                        env=base | mine,
                        cwd=place,
                        stdout=stream,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
            logs.append(log)
        # As the tutorials do: nothing says when a pserver is ready.
        time.sleep(8 if role == "PSERVER" else 0)
    try:
        for process in processes:
            assert process.wait(600) == 0, "\n".join(log.read_text()[-2000:] for log in logs)
    finally:
        for process in processes:
            process.kill()
    trainers = [
        [json.loads(line) for line in log.read_text().splitlines() if line.startswith('{"pass"')]
        for log in logs
    ]
    return Speed.of([trainer for trainer in trainers if trainer])


@dataclass
class Speed:
    """The speed of training, without saves."""

    by_clock: float
    """Records per second of all trainers together; the slowest trainer of a pass sets its time."""
    by_processor: float
    """Records per second of processor time."""

    @classmethod
    def of(cls, trainers):
        counted = [trainer[1:] for trainer in trainers]
        records = sum(row["records"] for trainer in counted for row in trainer)
        seconds = statistics.median(
            max(row["seconds"] for row in trained) for trained in zip(*counted, strict=True)
        )
        processor = sum(row["cpu_seconds"] for trainer in counted for row in trainer)
        return cls(records / len(counted[0]) / seconds, records / processor)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--pods", type=int, default=3)
    parser.add_argument("--passes", type=int, default=6)
    parser.add_argument("--lines", type=int, default=40_000)
    options = parser.parse_args()
    clock, processor, starts = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        # Once for the shards and the vocabulary; not counted.
        job, _, _ = supervised(Path(folder) / "first", options, options.lines)
        vocabulary = next((job.folder.output / "agreed").glob("*.json"))
        for number in range(options.rounds):
            for side in ("ours", "theirs") if number % 2 == 0 else ("theirs", "ours"):
                place = Path(folder) / f"{side}-{number}"
                if side == "ours":
                    _, ours, start = supervised(place, options, options.lines)
                    starts += start
                else:
                    theirs = bare(place, options, job.folder.shard, vocabulary)
            clock.append(ours.by_clock / theirs.by_clock)
            processor.append(ours.by_processor / theirs.by_processor)
            print(
                f"round {number}: supervised {ours.by_clock:7.0f} records/s, bare "
                f"{theirs.by_clock:7.0f}, ratio {clock[-1]:.3f}; a second of processor time "
                f"{ours.by_processor:7.0f} and {theirs.by_processor:7.0f}, ratio "
                f"{processor[-1]:.3f}",
                flush=True,
            )
    print(f"supervised against bare, median of {options.rounds} rounds (target at least 0.98):")
    print(
        f"  {statistics.median(clock):.3f} by the clock, {statistics.median(processor):.3f} by "
        "processor time"
    )
    print(f"pod start to first batch, median of all pods: {statistics.median(starts):.2f} s")


if __name__ == "__main__":
    main()
