"""Who died first decides: what a job says of its end, and whether it is tried again."""

import json
import os
import re
import signal
import sys

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


STEPS = {"METRICS": json.dumps({"loss": r"loss (\d+)"})}


FAILS = "raise ValueError('no such flag')"


@pytest.mark.parametrize(("lines", "attempts", "tried"), [
    (f"import paddle.distributed\n{FAILS}", 4, 1),
    (FAILS, 3, 1),
    (f"try:\n    {{}}['key']\nexcept KeyError:\n    {FAILS}", 3, 1),
    # A first epoch may say nothing until its end, and one line an epoch may be no metric.
    (FAILS, 4, 4),
    (f"print('epoch 1 took 7 s', flush=True)\n{FAILS}", 3, 3),
    (f"print('loss 3', flush=True)\n{FAILS}", 3, 3),
])  # fmt: skip
def test_an_exception_before_the_first_step_ends_the_job(command, lines, attempts, tried):
    pods = command(lines, ATTEMPTS=str(attempts), **STEPS)
    module = pods.folder.program("quick_start") / "paddle/distributed.py"
    module.parent.mkdir()
    for file in (module, module.with_name("__init__.py")):
        file.touch()
    pods.start()
    pods.end_with(1)
    assert len(pods.attempts()) == tried
    last = pods.log(0).splitlines()[-1]
    once = r"attempt 1 failed before a step was seen and is not tried again: .* ValueError: no such"
    assert re.search(once, last) if tried == 1 else "before a step" not in last, last


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


def test_the_codes_of_others_are_the_consequence_of_a_lost_pod(command):
    pods = command(FROZEN.replace("CODE", "65"), count=2, ATTEMPTS="1")
    pods.start()
    pods.wait_until((pods.place / "beat-1-1").exists)
    trainer = pods.child(1, "trainer")
    for pid in (pods.pods[1].pid, trainer):
        os.kill(pid, signal.SIGSTOP)
    pods.wait_until(lambda: pods.attempts()[0]["cause"], 60)
    (first,) = pods.attempts()
    assert first["kind"] == "pod", first
    assert first["cause"].startswith("trainer 0 ended with 65")
    assert first["cause"].endswith("the pod of trainer 1 (job-1.job) said nothing for 6 s")
    pods.kill(1)
    pods.release()
    pods.start(1)
    pods.end_with(0, 0)


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


@pytest.mark.parametrize(("lines", "cause"), [
    ("sys.exit('label file has 3 columns, expected 2')",
     "trainer 0 ended with 1: label file has 3 columns, expected 2, in job-0.job"),
    ("print('run.sh: line 3: no-such: command not found'); os._exit(127)",
     "trainer 0 ended with 127: run.sh: line 3: no-such: command not found, in job-0.job"),
])  # fmt: skip
def test_the_words_with_which_a_program_ends_are_in_the_cause(command, lines, cause):
    pods = command(lines, ATTEMPTS="1")
    pods.start()
    pods.codes()
    assert pods.attempts()[0]["cause"] == cause


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
        r"no step, no output and no progress for \d+ s .*; silent first: trainer 1 in job-1.job, "
        r"for \d+ s; trainer 0: rank 0 is in train.py:\d+; trainer 1: rank 1 is in train.py:8; ",
        pods.attempts()[0]["cause"],
    )
