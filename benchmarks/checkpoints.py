"""What a kill costs with `checkpoint_minutes`: the seconds of work since the newest checkpoint.

    python benchmarks/checkpoints.py [--kills 10] [--minutes 0.2] [--runtime fleet-ps]

A job of two trainers is killed at random moments: a trainer, or with fleet-ps also a pserver. Each
record that a trainer was given is written down with its time, so that work done again shows. A kill
should cost at most the interval, a step and a save.
"""

import argparse
import contextlib
import itertools
import os
import random
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(PROJECT / "tests/fleet"), str(PROJECT / "trainer_image")]
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
    options = parser.parse_args()
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
