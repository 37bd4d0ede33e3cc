"""What a kill costs with `checkpoint_minutes`: the seconds of work since the newest checkpoint.

    python benchmarks/checkpoints.py [--kills 10] [--minutes 0.2] [--runtime fleet-ps]

    python benchmarks/checkpoints.py --gigabytes 1 [--speed 50] [--interval 10]

measures instead what a command's save costs on a volume that takes so many MB/s, without and with
`checkpoints: local`: for how long training stands still, and what a kill of its process or its pod
loses. Seconds of work are those of training, without those in which it stood still. TMPDIR says
where the scratch is: on a machine with a slow disk, /dev/shm, with 8 GB for saves of 1 GB.

A job of two trainers is killed at random moments: a trainer, or with fleet-ps also a pserver. Each
record that a trainer was given is written down with its time, so that work done again shows. A kill
should cost at most the interval, a step and a save.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(PROJECT / "tests" / room) for room in ("fleet", "node")]
sys.path[:0] = [str(PROJECT / "trainer_image")]
from node_pods import ENTRY, StandIns  # noqa: E402
from paddle_node.training import shard  # noqa: E402
from training_job import TrainingJob  # noqa: E402

PASSES, BATCH = 3, 4
EACH_RECORD = """
with open(f'{PLACE}/trained-{index}', 'a') as file:
    attempt = os.environ.get('PADDLE_NODE_ATTEMPT')
    print(attempt, time.time(), labelled[0], *labelled[1], sep='\\t', file=file)
if not os.path.exists(f'{PLACE}/released'):
    time.sleep(SECONDS / (1 if index == '1' else 10))
"""
"""Until the last kill, trainer 1's first pass outlasts all attempts, and trainer 0 waits for it at
the end of that pass.
"""


SLOW_WRITES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
ssize_t write(int file, const void *content, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = size > 65536 ? readlink(link, path, sizeof path - 1) : -1;
    if (length > 0) {
        path[length] = 0;
        if (strstr(path, "/volume/")) usleep(size / atof(getenv("MEGABYTES")));
    }
    return real(file, content, size);
}
"""
"""Slows down writes to the volume, as a file server does: a close on NFS waits for them."""
SAVES = """
import json, os, sys, time
block, path = os.urandom(4 << 20), sys.argv[1] if len(sys.argv) > 1 else ""
step = int(path.rpartition("-")[2]) if path else 0
print(f"began behind {step} at {time.time()}", flush=True)
saved = time.time()
tensor = {"dtype": "U8", "shape": [BLOCKS << 22], "data_offsets": [0, BLOCKS << 22]}
HEAD = json.dumps({"weights": tensor}).encode()
os.makedirs("output", exist_ok=True)
while True:
    time.sleep(SECONDS)
    step += 1
    print(f"step {step} at {time.time()}", flush=True)
    if time.time() - saved > INTERVAL:
        began, busy = time.time(), time.process_time()
        os.mkdir(f"output/step-{step}")
        with open(f"output/step-{step}/weights.safetensors", "wb", buffering=0) as file:
            file.write(len(HEAD).to_bytes(8, "little") + HEAD)
            for _ in range(BLOCKS):
                file.write(block)
        saved = time.time()
        print(f"stood {saved - began:.2f} busy {time.process_time() - busy:.2f}", flush=True)
        for old in sorted(os.listdir("output"), key=lambda name: int(name[5:]))[:-2]:
            os.remove(f"output/{old}/weights.safetensors")
            os.rmdir(f"output/{old}")
"""
SECONDS_PER_STEP, SAVES_BEFORE = 0.1, 4
"""The kill comes when 0.8 of the interval after so many saves is over."""


class Cost(NamedTuple):
    """What one run showed, in seconds."""

    stood: float
    """The median of how long training stood still for a save."""
    busy: float
    """The processor time of that: on a busy machine it stands still for longer."""
    lost: float
    """Work lost at the kill."""
    away: float
    """From the kill to the next attempt's training."""


def save(place: Path, options: argparse.Namespace, checkpoints: str, victim: str) -> Cost:
    """Kills a process or a pod shortly before a save."""
    library = place / "slow.so"
    if not library.exists():
        compiler = ["gcc", "-shared", "-fPIC", "-O2", "-x", "c", "-", "-o", str(library), "-ldl"]
        subprocess.run(compiler, input=SLOW_WRITES, text=True, check=True)
    with tempfile.TemporaryDirectory(dir=place) as own, StandIns(
        Path(own), 1, program=ENTRY, RUNTIME="launch", CHECKPOINTS=checkpoints, ATTEMPTS="9",
        COMMAND=json.dumps([sys.executable, "train.py"]), RESUME='["{newest:output/step-*}"]',
        CHECKPOINT_FILES='["weights.safetensors"]',
    ) as pods:  # fmt: skip
        values = (SECONDS_PER_STEP, options.interval, int(options.gigabytes * 1e9 / (4 << 20)))
        program = f"SECONDS, INTERVAL, BLOCKS = {values!r}\n{SAVES}"
        (pods.folder.program("quick_start") / "train.py").write_text(program)
        environment = pods.environment
        slow = {"LD_PRELOAD": str(library), "MEGABYTES": str(options.speed)}
        pods.environment = lambda index, **more: environment(index, **more) | slow
        pods.start()
        pods.wait_until(lambda: len(re.findall("stood", pods.log(0))) >= SAVES_BEFORE)
        time.sleep(0.8 * options.interval)
        log, killed = pods.log(0), time.time()
        if victim == "pod":
            pods.kill(0)
            pods.start(0)
        else:
            os.kill(pods.child(0, "trainer"), signal.SIGKILL)
        began = r"began behind (\d+) at ([\d.]+)"
        attempts = 1 if victim == "pod" else 2  # In the log of this pod.
        pods.wait_until(lambda: len(re.findall(began, pods.log(0))) >= attempts)
        step, at = re.findall(began, pods.log(0))[-1]
        stood, busy = (
            list(map(float, re.findall(rf"{word} ([\d.]+)", log))) for word in ("stood", "busy")
        )
        times = {int(of): float(when) for of, when in re.findall(r"step (\d+) at ([\d.]+)", log)}
        first, last = times[1], max(times)
        seconds = (times[last] - first - sum(stood)) / (last - 1)
        lost = (last - int(step)) * seconds
        return Cost(statistics.median(stood), statistics.median(busy), lost, float(at) - killed)


def compare(place: Path, options: argparse.Namespace) -> None:
    """Prints what was measured with checkpoints on the volume, and on the scratch."""
    costs = {
        (checkpoints, victim): save(place, options, checkpoints, victim)
        for checkpoints in ("volume", "local")
        for victim in ("process", "pod")
    }

    def tell(what: str, measure: Callable[[str], float]) -> None:
        volume, local = map(measure, ("volume", "local"))
        print(f"{what:44}{volume:8.2f}{local:8.2f}{local / max(volume, 0.01):8.2f}")

    print(
        f"saves of {options.gigabytes:g} GB after {options.interval:g} s of training each, on a "
        f"volume with {options.speed:g} MB/s; killed {0.8 * options.interval:g} s behind one"
    )
    print(f"{'checkpoints:':44}{'volume':>8}{'local':>8}{'ratio':>8}")
    tell("training stands still for a save, s", lambda kind: costs[kind, "process"].stood)
    tell("of that, processor time, s", lambda kind: costs[kind, "process"].busy)
    tell(
        "share of the time in which it trains",
        lambda kind: options.interval / (options.interval + costs[kind, "process"].stood),
    )
    for victim in ("process", "pod"):
        tell(f"a killed {victim}: work lost, s", lambda kind: costs[kind, victim].lost)  # noqa: B023
        tell(f"a killed {victim}: until it trains again, s", lambda kind: costs[kind, victim].away)  # noqa: B023


def trained(job: TrainingJob, trainer: int) -> list[tuple[int, float, list[str]]]:
    """Returns attempt, time and fields of each record that a trainer was given."""
    file = job.place / f"trained-{trainer}"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [
        (int(attempt), float(seconds), record)
        for attempt, seconds, *record in (line.split("\t") for line in lines)
    ]


def attempts(job: TrainingJob, trainer: int) -> dict[int, tuple[int, list[float]]]:
    """Returns for each attempt its first record, counted over all passes, and the time of each
    record from there on.
    """
    records = (
        record.text.split("\t")
        for number in range(PASSES)
        for record in shard.open_shard(job.folder, trainer).shuffle(1, number, trainer)
    )
    order = [[label, *text.split()] for label, text in records]
    by_attempt, reached = {}, 0
    for attempt, group in itertools.groupby(trained(job, trainer), key=lambda record: record[0]):
        _, times, given = map(list, zip(*group, strict=True))
        first = next(at for at in range(reached, -1, -1) if order[at : at + len(given)] == given)
        by_attempt[attempt] = (first, times)
        reached = first + len(given)
    assert reached == len(order), "records are missing"
    return by_attempt


def kill(job: TrainingJob, kills: int, seconds: float, roles: list[str]) -> dict[int, float]:
    """Kills processes at random moments. Returns the time of each kill by its attempt."""
    dice, killed = random.Random("kills"), {}
    while len(killed) < kills:
        job.wait_until(lambda: (given := trained(job, 1)) and given[-1][0] not in killed)
        time.sleep(dice.uniform(0, 2.5 * seconds))
        process = job.child(dice.randrange(2), dice.choice(roles))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
            killed[trained(job, 1)[-1][0]] = time.time()
    return killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=0.2)
    parser.add_argument("--runtime", choices=("fleet-ps", "collective"), default="fleet-ps")
    parser.add_argument("--gigabytes", type=float, help="size of a command's save")
    parser.add_argument("--speed", type=float, default=50, help="MB/s of the volume")
    parser.add_argument("--interval", type=float, default=10, help="seconds between saves")
    options = parser.parse_args()
    if options.gigabytes:
        with tempfile.TemporaryDirectory() as place:
            compare(Path(place), options)
        return
    servers = options.runtime == "fleet-ps"
    with (
        tempfile.TemporaryDirectory() as place,
        TrainingJob(
            Path(place),
            "quick_start" if servers else "collective",
            2,
            PASSES=str(PASSES),
            RUNTIME=options.runtime,
            CHECKPOINT=str(60 * options.minutes),
            ATTEMPTS="100",
        ) as job,
    ):
        pause = options.kills * 3 * 60 * options.minutes / 900
        job.at_each_record(f"PLACE, SECONDS = {place!r}, {pause}{EACH_RECORD}")
        job.change("batch=32", f"batch={BATCH}")
        job.split(job.make_sample("--lines", "2000"))
        job.start()
        roles = ["trainer", "pserver"] if servers else ["trainer"]
        killed = kill(job, options.kills, 60 * options.minutes, roles)
        job.release()
        job.end_with()
        _, by_attempt = attempts(job, 0), attempts(job, 1)
        for attempt, moment in killed.items():
            first, times = by_attempt[attempt]
            resumed, _ = by_attempt[min(number for number in by_attempt if number > attempt)]
            lost = moment - [*times, moment][max(0, resumed - first)]
            print(f"attempt {attempt}: {lost:5.1f} s of work lost")
        log = job.folder.train_log(0).read_text(errors="replace")
        print(*re.findall("checkpoint in .*", log), sep="\n")
        print(f"accuracy {job.judged()['value']}")


if __name__ == "__main__":
    main()
