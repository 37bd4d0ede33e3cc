"""Kills at random moments, and how much work each costs, in seconds: a storm counts steps. Real
Paddle: about half a minute per runtime.

For the result in docs/faults.md: KILLS=10 CHECKPOINT_MINUTES=0.2 pytest -s
tests/fleet/test_checkpoints.py -k fleet-ps
"""

import contextlib
import itertools
import os
import random
import re
import signal
import time

import pytest
from paddle_node.training import shard
from paddle_node.volume import passes

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("KILLS", "5"))
MINUTES = float(os.environ.get("CHECKPOINT_MINUTES", "0.02"))
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


def trained(job, trainer: int) -> list[tuple[int, float, list[str]]]:
    """Attempt, time and fields of each record that a trainer was given."""
    file = job.place / f"trained-{trainer}"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [
        (int(attempt), float(when), record)
        for attempt, when, *record in (line.split("\t") for line in lines)
    ]


def stretches(job, trainer: int) -> dict[int, tuple[int, list[float]]]:
    """Maps each attempt to its start in the whole training order and to the time of each record
    from there on.
    """
    own = shard.of_trainer(job.folder, trainer)
    records = (
        record.text.split("\t")
        for number in range(PASSES)
        for record in own.shuffled(1, number, trainer)
    )
    order, found, reached = [[label, *text.split()] for label, text in records], {}, 0
    for attempt, group in itertools.groupby(trained(job, trainer), key=lambda each: each[0]):
        _, when, given = map(list, zip(*group, strict=True))
        begin = next(at for at in range(reached, -1, -1) if order[at : at + len(given)] == given)
        found[attempt] = (begin, when)
        reached = begin + len(given)
    assert reached == len(order)
    return found


@pytest.mark.parametrize(
    ("runtime", "kills_wanted"), [("fleet-ps", KILLS), ("collective", min(KILLS, 3))]
)
def test_a_kill_costs_the_work_since_the_newest_checkpoint_and_every_record_is_trained_once(
    training_job, runtime, kills_wanted
):
    program = "quick_start" if runtime == "fleet-ps" else runtime
    job = training_job(
        program,
        2,
        PASSES=str(PASSES),
        RUNTIME=runtime,
        CHECKPOINT=str(60 * MINUTES),
        ATTEMPTS="100",
    )
    seconds = kills_wanted * 3 * 60 * MINUTES / 900
    job.at_each_record(f"PLACE, SECONDS = {str(job.place)!r}, {seconds}{EACH_RECORD}")
    job.change("batch=32", f"batch={BATCH}")
    job.split(job.make_sample("--lines", "2000"))
    job.start()
    draw = random.Random(runtime)
    kills: dict[int, float] = {}
    while len(kills) < kills_wanted:
        job.wait_until(lambda: (had := trained(job, 1)) and had[-1][0] not in kills)
        time.sleep(draw.uniform(0, 2.5 * 60 * MINUTES))
        victim = job.child(
            draw.randrange(2),
            draw.choice(["trainer", "pserver"] if runtime == "fleet-ps" else ["trainer"]),
        )
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
            kills[trained(job, 1)[-1][0]] = time.time()
    job.release()
    job.end_with()

    # Each attempt began where an earlier one had got to, and the last reached the end: every record
    # counts once.
    _, own = stretches(job, 0), stretches(job, 1)
    for attempt, killed in kills.items():
        (begin, when), (resumed, _) = own[attempt], own[min(each for each in own if each > attempt)]
        lost = killed - [*when, killed][max(0, resumed - begin)]
        # All trainers meet at the end of a step, and one saves. Neither takes longer than the
        # longest step's records took.
        ends = [*when, killed]
        longest = max(
            late - early for early, late in zip(ends, ends[BATCH + 1 :] or ends[-1:], strict=False)
        )
        print(
            f"attempt {attempt}: {lost:.1f} s of work lost; a step, or a save, took "
            f"{longest:.1f} s at most"
        )
        assert lost <= 60 * MINUTES + 2 * longest
    said = job.folder.train_log(0).read_text(errors="replace")
    print(*re.findall("checkpoint in .*", said), sep="\n")
    assert (
        len(re.findall(r"checkpoint in pass 0 at step \d+: \d+\.\d\d s, \d+\.\d MB", said))
        >= kills_wanted // 2
    )
    assert "no checkpoint" not in said and not list(
        passes.newest_first(job.folder, passes.INTERRUPTED)
    )
    assert [(m["pass"], m["records"]) for m in job.metrics(1)] == [
        (number, 900) for number in range(PASSES)
    ]
    assert job.judged()["value"] > 0.7
