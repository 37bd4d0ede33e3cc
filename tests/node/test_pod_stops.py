"""What PID 1 must handle: stubborn children, orphans, output that nobody reads, a volume that
hangs, a drained node.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from node_pods import ENTRY

pytestmark = pytest.mark.slow


def test_a_trainer_that_does_not_leave_is_ended_when_the_grace_period_is_over(job):
    pods = job(stand_in={"hang": [1, 0, 1]}, GRACE="1.5")
    pods.start()
    pods.wait_for(1, "this trainer hangs on purpose")
    pods.terminate()
    pods.end_with(143, 143, 143)
    assert "the 1.5 s after SIGTERM are over" in pods.logs()


HALF_ENDED = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(3600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_what_left_its_session_is_reaped_and_does_not_outlive_its_attempt(job, tmp_path):
    """Three processes have left their parent and their session: an orphan, which ends, and two
    daemons, which do not.

    In one daemon only the main thread has ended: Linux shows a zombie, whose other threads keep its
    sockets.
    """
    (tmp_path / "half.py").write_text(HALF_ENDED)
    kinds = {"o": "sleep 0.1", "d": "sleep 3600", "h": f"{sys.executable} {tmp_path}/half.py"}
    shell = "\n".join(
        f"setsid {does} > /dev/null 2>&1 & echo $! >> {tmp_path}/{kind}"
        for kind, does in kinds.items()
    )
    pods = job(count=1, stand_in={"shell": shell, "fails": [[0, 1, 0, 1]], "holds": [2, 0, 0]})
    pods.start_and_hold()
    pods.wait_until(
        lambda: not any(Path("/proc", pid).exists() for pid in (tmp_path / "o").read_text().split())
    )
    daemons = [
        [Path("/proc", pid) for pid in (tmp_path / kind).read_text().split()] for kind in ("d", "h")
    ]
    assert [[process.exists() for process in both] for both in daemons] == [
        [False, True],
        [False, True],
    ]
    pods.release()
    pods.end_with(0)
    assert not any(process.exists() for both in daemons for process in both)


def test_output_that_nobody_reads_holds_nobody_up(job):
    pods = job(
        count=2, stand_in={"shell": "head -c 12000000 /dev/zero | tr '\\0' x | fold -w 1000"}
    )
    pods.start(0)
    pods.start(1, unread=True)
    pods.end_with(0, 0)
    assert pods.folder.train_log(1).read_text().count("x" * 1000) == 12_000


@pytest.mark.parametrize(("first_read", "sentence"), [
    ("run/attempts.json", "nothing can be read or recorded there"),
    # Once the pods have met, the attempt first asks which pass it begins with.
    ("attempts/run-0-1/pass-00000/done", "nothing can be read or recorded there"),
])  # fmt: skip
def test_a_volume_that_hangs_is_left(job, first_read, sentence):
    # Opening a pipe without a writer for reading blocks forever, like an NFS mount that has lost
    # its server.
    pods = job(count=2, PEER_DEADLINE="3")
    hanging = pods.folder.output / first_read
    hanging.parent.mkdir(parents=True)
    os.mkfifo(hanging)
    pods.start()
    pods.end_with(75, 75)
    assert sentence in pods.log(0) and sentence in pods.log(1)


@pytest.mark.skipif(
    shutil.which("strace") is None, reason="only strace can make a volume hang here"
)
def test_a_volume_that_hangs_during_training_takes_no_outcome(job):
    """Each fsync of the agent really takes 7 s longer than usual: strace delays the system call."""
    pods = job(count=2, stand_in={"holds": [1, 0, 1]}, PEER_DEADLINE="6")
    pods.start_and_hold()
    slowed = [
        "strace",
        "-f",
        "-e",
        "trace=fsync",
        "-e",
        "inject=fsync:delay_enter=7000000",
        "-o",
        "/dev/null",
    ]
    with subprocess.Popen(
        [*slowed, "-p", str(pods.pods[0].pid)], stderr=subprocess.PIPE, text=True
    ) as tracer:
        attached = tracer.stderr.readline()
        if "attached" not in attached:
            pytest.skip(f"strace may not work here: {attached.strip()}")
        try:
            pods.release()
            pods.end_with(75, 75)
        finally:
            tracer.kill()  # Otherwise the test would wait for a pod that does not end.
    assert "nothing can be read or recorded there" in pods.log(1)


SAVES_AND_ENDS = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("trains", flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.02)
"""


def test_a_command_that_ends_well_because_it_was_told_to_stop_is_not_done(job):
    """On a drained node both processes answered SIGTERM with 0, and the job counted as complete in
    the middle of its work.
    """
    pods = job(count=2, program=ENTRY, RUNTIME="launch")
    pods.variables["COMMAND"] = json.dumps(
        [sys.executable, "train.py", str(pods.place / "released")]
    )
    (pods.folder.program("quick_start") / "train.py").write_text(SAVES_AND_ENDS)
    pods.start()
    for index in (0, 1):
        pods.wait_for(index, r"\] trains")
    pods.terminate(1)
    assert pods.pods[1].wait(90) == 143, pods.logs()
    pods.start(1)
    pods.release()
    pods.end_with(0, 0)
    assert [one["kind"] for one in pods.attempts()] == ["stopped", "stopped"] and pods.attempts()[
        0
    ]["cause"] != "done"
