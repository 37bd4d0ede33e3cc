"""Who died first decides: what a job says of its end, and whether it is tried again."""

import json
import os
import re
import signal
import sys
import time

import pytest
from node_pods import ENTRY

pytestmark = pytest.mark.slow


@pytest.fixture
def command(job):
    """Makes a job whose pods run these lines as their own command; `attempt` and `rank` are theirs,
    `wait` is for the test's release.
    """

    def make(lines: str, count: int = 1, **settings: str):
        pods = job(count=count, program=ENTRY, RUNTIME="launch", **settings)
        pods.variables["COMMAND"] = json.dumps([sys.executable, "train.py"])
        head = (
            "import os, sys, time, traceback\n"
            "from pathlib import Path\n"
            "attempt, rank = (int(os.environ[name]) for name in ('PADDLE_NODE_ATTEMPT', 'RANK'))\n"
            f"place = Path({str(pods.place)!r})\n"
        )
        (pods.folder.program("quick_start") / "train.py").write_text(head + lines)
        return pods

    return make


HANDLED = """
try:
    import no_such_module
except ImportError:
    traceback.print_exc()
"""


def test_an_exception_that_the_program_handled_is_not_why_it_fell(command):
    pods = command(HANDLED + "if attempt == 1: os.abort()")
    pods.start()
    pods.end_with(0)
    first, _ = pods.attempts()
    assert not first["hopeless"] and first["cause"].startswith(
        "trainer 0 ended with 134 (SIGABRT), "
    )


STEPS = {"METRICS": json.dumps({"loss": r"loss (\d+)"})}


@pytest.mark.parametrize(("lines", "settings", "attempts", "sentence"), [
    ("raise ValueError('no such flag')", STEPS, 1,
     r"attempt 1 failed before its first step and is not tried again: .* ValueError: no such flag"),
    # Behind a step, without metrics that show whether there was one, or if the network may be at
    # fault, a failure is one of limits.attempts, however often it is the same.
    ("print('loss 1', flush=True)\nraise ValueError('bad row')", STEPS, 4, r"^4 attempts ended"),
    ("raise ValueError('no such flag')", {}, 4, r"^4 attempts ended without progress: attempt 1: "),
    ("raise ConnectionError('refused')", STEPS, 4, r"^4 attempts ended without progress: "),
])  # fmt: skip
def test_attempts_are_what_the_setting_says_and_an_exception_before_the_first_step_ends_the_job(
    command, lines, settings, attempts, sentence
):
    pods = command(lines, ATTEMPTS="4", **settings)
    pods.start()
    pods.end_with(1)
    assert len(pods.attempts()) == attempts
    assert re.search(sentence, pods.log(0).splitlines()[-1].removeprefix("[agent] "))


FROZEN = """
mine, other = place / f"beat-{attempt}-{rank}", place / f"beat-{attempt}-{1 - rank}"
last = time.monotonic()
while not (place / "released").exists():
    mine.touch()
    if rank == 0 and attempt == 1 and other.exists():
        if time.time() - other.stat().st_mtime > 1:
            sys.exit(CODE)
    time.sleep(0.05)
"""


@pytest.mark.parametrize("code", [2, 65, 70, 73, 77])
def test_the_codes_of_others_are_the_consequence_of_a_lost_pod(command, code):
    pods = command(FROZEN.replace("CODE", str(code)), count=2, ATTEMPTS="1")
    pods.start()
    pods.wait_until((pods.place / "beat-1-1").exists)
    trainer = pods.child(1, "trainer")
    for pid in (pods.pods[1].pid, trainer):
        os.kill(pid, signal.SIGSTOP)
    pods.wait_until(lambda: pods.attempts()[0]["cause"], 60)
    (first,) = pods.attempts()
    assert first["kind"] == "pod", first
    assert first["cause"].startswith(f"trainer 0 ended with {code}")
    assert first["cause"].endswith("the pod of trainer 1 (job-1.job) said nothing for 6 s")
    pods.kill(1)
    pods.release()
    pods.start(1)
    pods.end_with(0, 0)


def test_a_pod_that_was_frozen_for_less_than_a_loss_does_not_end_the_job_either(command):
    pods = command(FROZEN.replace("CODE", "2"), count=2)
    pods.start()
    pods.wait_until((pods.place / "beat-1-1").exists)
    frozen = (pods.pods[1].pid, pods.child(1, "trainer"))
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    pods.wait_for(0, "attempt 1 ends: trainer 0 ended with 2")
    time.sleep(2.5)
    for pid in reversed(frozen):  # The agent, once it is back, ends its trainer.
        os.kill(pid, signal.SIGCONT)
    pods.release()
    pods.end_with(0, 0)
    assert re.search(
        r"; the pod of trainer 1 .* had said nothing for [345] s", pods.attempts()[0]["cause"]
    )


DRAINS = """
if attempt == 1:
    if rank == 0:
        if os.fork() == 0:
            os.setsid()
            time.sleep(60)  # Holds the log open, as a worker of a data loader does.
        (place / "first").touch()
        raise RuntimeError("it died first")
    while not (place / "first").exists():
        time.sleep(0.01)
    time.sleep(0.3)
    sys.exit("a consequence")
"""


def test_the_process_that_ended_first_is_the_cause_whosever_report_comes_first(command):
    pods = command(DRAINS, count=2)
    pods.start()
    pods.end_with(0, 0)
    assert "trainer 0 ended with 1: RuntimeError: it died first" in pods.attempts()[0]["cause"]


HANGS = """
print("step 1", flush=True)
if rank == 1:
    time.sleep(600)
for _ in range(6):
    time.sleep(0.3)
    print("waits", flush=True)
"""


def test_after_a_hang_who_was_silent_first_is_named(command):
    pods = command(HANGS + "time.sleep(12)\nos.abort()", count=2, ATTEMPTS="1")
    pods.start()
    pods.end_with(134, 70)
    (attempt,) = pods.attempts()
    assert re.fullmatch(
        r"trainer 0 ended with 134 \(SIGABRT\), in job-0.job, after 1[12] s without output; "
        r"silent first: trainer 1 in job-1.job, for 1[3456] s",
        attempt["cause"],
    )


def test_a_stall_says_who_was_silent_first(command):
    pods = command(HANGS + "time.sleep(600)", count=3, ATTEMPTS="1", STALL="4")
    pods.start()
    pods.end_with(70, 70, 70)
    assert re.search(
        r"no step, no output and no progress for \d s .*; silent first: trainer 1 in job-1.job, "
        "for [5-9] s",
        pods.attempts()[0]["cause"],
    )
