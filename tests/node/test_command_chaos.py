"""Fault upon fault on a command's job, drawn from a seed: its files end exactly as undisturbed.

The test also plays the Job's controller, which replaces a pod that ended, or that is frozen, at a
new address. More seeds: CHAOS_SEEDS="4 5 6" pytest tests/node/test_command_chaos.py
"""

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time

import pytest
from node_pods import ENTRY

pytestmark = pytest.mark.slow
EPOCHS = 60
PROGRAM = f"""
import json, os, sys, time
from pathlib import Path
attempt, rank = int(os.environ["PADDLE_NODE_ATTEMPT"]), int(os.environ["RANK"])
output, done, total = Path("output"), -1, 0
if len(sys.argv) > 1:
    done, total = json.loads(Path(sys.argv[1]).read_text())
log = open(output / "log", "a") if rank == 0 else None
for epoch in range(done + 1, {EPOCHS}):
    total += epoch
    time.sleep(0.1)
    if rank == 0:
        with open(output / "epochs", "a") as epochs:
            epochs.write(f"{{epoch}}\\n")
        print(attempt, epoch, file=log, flush=True)
        (output / "owner").write_text(str(attempt))
        (output / "draft").write_text(json.dumps([epoch, total]))
        (output / "draft").rename(output / f"epoch-{{epoch}}")
if rank == 0:
    (output / "result").write_text(str(total))
"""


@pytest.mark.parametrize(
    "seed", [int(seed) for seed in os.environ.get("CHAOS_SEEDS", "1 2").split()]
)
def test_many_faults(job, seed):
    draw, over, frozen = random.Random(seed), threading.Event(), []
    pods = job(
        count=2,
        program=ENTRY,
        RUNTIME="launch",
        COMMAND=json.dumps([sys.executable, "train.py"]),
        RESUME='["{newest:output/epoch-*}"]',
        SUCCESS="output/result",
        ATTEMPTS="9",
        PEER_DEADLINE="60",
        GRACE="2",
    )
    (pods.folder.program("quick_start") / "train.py").write_text(PROGRAM)

    def replace(index: int) -> None:
        pods.replaced[index] += 1
        pods.start(index)

    def control() -> None:
        while not over.is_set():
            for index, pod in list(pods.pods.items()):
                if pod.poll() not in (None, 0):
                    replace(index)
            time.sleep(0.05)

    pods.start()
    controller = threading.Thread(target=control, daemon=True)
    controller.start()
    told = []
    try:
        for _ in range(8):
            time.sleep(draw.uniform(0.3, 3))
            if all(pod.poll() == 0 for pod in pods.pods.values()):
                break
            fault, index = (
                draw.choice(["trainer", "pod", "stop", "freeze", "sleep"]),
                draw.randrange(2),
            )
            told.append(f"{fault} {index}")
            with contextlib.suppress(ProcessLookupError, AssertionError):
                pod, trainer = pods.pods[index], pods.child(index, "trainer")
                if fault == "trainer":
                    os.kill(trainer, signal.SIGKILL)
                elif fault == "pod":
                    pod.kill()
                elif fault == "stop":
                    pod.terminate()
                else:
                    for pid in (trainer, pod.pid):
                        os.kill(pid, signal.SIGSTOP)
                    if fault == "freeze":  # Its successor runs by the time that it wakes up.
                        frozen.append((trainer, pod.pid))
                        replace(index)
                    wake = threading.Timer(
                        draw.uniform(1, 9),
                        lambda pids: [continued(pid) for pid in pids],
                        [(trainer, pod.pid)],
                    )
                    wake.start()
        pods.wait_until(
            lambda: all(pod.poll() == 0 for pod in pods.pods.values()), 240, f"{told}\n"
        )
    finally:
        over.set()
        controller.join()
        for pids in frozen:
            for pid in pids:
                continued(pid)
    print(f"{told}, {len(pods.attempts())} attempts")
    output = pods.folder.output
    assert (output / "result").read_text() == str(sum(range(EPOCHS)))
    for epoch in range(EPOCHS):
        saved = json.loads((output / f"epoch-{epoch}").read_text())
        assert saved == [epoch, sum(range(epoch + 1))]
    lines = [tuple(map(int, line.split())) for line in (output / "log").read_text().splitlines()]
    assert lines == sorted(lines), pods.logs()
    assert (output / "owner").read_text() == str(lines[-1][0])
    # Between two attempts at most the epoch that was not saved is repeated.
    epochs = [epoch for _, epoch in lines]
    assert sorted(set(epochs)) == list(range(EPOCHS))
    assert len(epochs) <= EPOCHS + len(pods.attempts())


def continued(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
