"""Storms of real parameter servers whose sums are exact. Each record adds its number, a whole one,
to sums on the servers, and in whatever order that happens, the sums are the same to the last digit.
So a server that started empty, and a step that was lost or done twice, show in the result; the loss
of each step is the mean of its records, so records that are left out or read twice show there.

Adam's moments are no such numbers: tests/fleet has them. More seeds: STORM_SEEDS="4 5 6" pytest
tests/storm
"""

import json
import os
import re

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long]
PASSES, RECORDS, HELD_OUT, BATCH = 3, 640, 128, 16
PROGRAM = f"""
import paddle
from paddle import static
from paddle_node import fleet


def sample(number):
    return {{"number": number, "nothing": 0}}


def network():
    number, zero = fleet.number("number"), paddle.nn.initializer.Constant(0.0)
    sums = static.create_parameter([2], "float32", "sums", default_initializer=zero)
    total = paddle.sum(sums)  # Each server holds one of the sums.
    mean = paddle.mean(number)
    loss = mean + mean * (total - total.detach())  # Its value is that of the first part alone.
    return fleet.Model(loss, prediction=total + 0 * number, answer=fleet.number("nothing"))


job = fleet.start(int)
sgd = paddle.optimizer.SGD({BATCH}.0)
job.run(network, sample, batch={BATCH}, optimizer=sgd, sync=True)
"""
KILLS = (
    "kill-rank/1@step-10,kill-rank/0@save-8,kill-server/1@step-20,kill-pod/0@save-24,"
    "kill-agent/0@step-30,kill-agent/1@step-30,freeze-pod/1@step-36,spot-notice/0@step-42"
)
POD_LIST = "kill-pod/1@step-10,kill-pod/0@step-20,spot-notice/1@step-30"
SEEDS = [("index", ("--seed", seed)) for seed in os.environ.get("STORM_SEEDS", "").split()]


@pytest.mark.parametrize(
    ("discovery", "words"),
    [
        ("index", ("--faults", KILLS)),
        ("pod-list", ("--faults", POD_LIST)),
        *SEEDS,
    ],
)
def test_sums_on_parameter_servers_end_exactly_as_undisturbed(storm, discovery, words):
    ended = storm(
        *("--runs", "1", "--no-shrink", *words),
        program=PROGRAM,
        data="".join(f"{number % 7 + 1}\n" for number in range(RECORDS)),
        reading={"hold_out": HELD_OUT / RECORDS},
        passes=PASSES,
        checkpoint_minutes=0.02,
        discovery=discovery,
    )
    assert ended.code == 0 and "undisturbed runs are exactly equal" in ended.output, ended.output
    faults = ended.receipt["runs"][0]["faults"]
    effects = [fault["effect"] for fault in faults]
    assert not [effect for effect in effects if effect.startswith(("no effect", "its event"))]
    shards = [ended.folder.shard(trainer) for trainer in range(2)]
    files = [file for shard in shards for file in sorted(shard.glob("part-*"))]
    trained = [int(line) for file in files for line in file.read_text().split()]
    assert len(trained) == RECORDS - HELD_OUT
    # The answer is 0, so the error is the result itself: both sums.
    assert ended.receipt["runs"][0]["result"]["rmse"] == 2 * PASSES * sum(trained)
    numbers = [attempt["number"] for attempt in ended.attempts]
    assert numbers == list(range(1, len(numbers) + 1))
    if KILLS in words:
        # The whole job was lost in one instant: no agent was left to tell the others.
        agents = [fault for fault in faults if fault["fault"].startswith("kill-agent")]
        assert agents[0]["attempt"] == agents[1]["attempt"]
        assert ended.attempts[-2]["cause"].endswith("was told to stop")
        assert all(f"rank {rank}: told to stop: pass 2 is kept" in ended.text for rank in (0, 1))
        # A lost pod and one with a spot notice are replaced; the other stays through all of it.
        starts = re.findall(r"pod job-\w+-(\d)-\w+ starts", ended.text)
        assert sorted(starts) == ["0", "0", "0", "1"]
    for trainer in range(2):
        lines = map(json.loads, ended.folder.metrics(trainer).read_text().splitlines())
        passes = {line["pass"]: line["records"] for line in lines}
        assert passes == dict.fromkeys(range(PASSES), len(trained) // 2)
