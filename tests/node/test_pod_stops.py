"""What PID 1 owes its pod: stubborn children, orphans, an agent that was suspended, a volume that is full."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from node_pods import runs

pytestmark = pytest.mark.slow


def test_a_trainer_that_does_not_leave_is_ended_when_the_grace_period_is_over(job):
    pods = job(stand_in={"hang": [1, 0, 1]}, GRACE="1.5")
    pods.start()
    pods.wait_for(1, "this trainer hangs on purpose")
    pods.terminate()
    assert pods.codes() == [143, 143, 143], pods.logs()
    assert "the 1.5 s after SIGTERM are over" in pods.logs()


def zombies_of(parent):
    count = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, its_parent = entry.read_text().rpartition(")")[2].split()[:2]
            count += state == "Z" and its_parent == str(parent)
    return count


def test_orphans_are_reaped(job):
    pods = job(count=1, stand_in={"orphans": True, "passes": 2, "steps": 12, "holds": [1, 1, 0]})
    pods.start_and_hold()  # Each step leaves one behind.
    pods.wait_until(lambda: zombies_of(pods.pods[0].pid) <= 1)
    pods.terminate()
    assert pods.codes() == [143]


def test_what_left_its_session_does_not_outlive_its_attempt(job):
    pods = job(count=1, stand_in={"daemons": True, "fails": [[0, 1, 0, 1]], "holds": [2, 0, 0]})
    pods.start_and_hold()
    first, second = map(int, (pods.folder.root / "daemons").read_text().split())
    assert not runs(first) and runs(second)
    pods.release()
    assert pods.codes() == [0], pods.logs()
    assert not runs(second)


def test_output_that_nobody_reads_holds_nobody_up(job):
    pods = job(count=2, stand_in={"floods": 12_000})
    pods.start(0)
    pods.start(1, unread=True)
    assert pods.codes() == [0, 0], pods.logs()
    assert pods.folder.train_log(1).read_text().count("x" * 1000) == 12_000


@pytest.fixture
def small_volume(tmp_path):
    """A volume of 400 KB that really is full."""
    volume = tmp_path / "small"
    volume.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", volume], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield volume
    subprocess.run(["umount", "-l", volume], check=True)


def test_a_full_volume_ends_the_job_with_a_sentence(job, tmp_path, small_volume):
    pods = job(count=1)
    shutil.move(tmp_path / "jobs/job", small_volume / "job")
    (tmp_path / "jobs/job").symlink_to(small_volume / "job")
    with contextlib.suppress(OSError), (small_volume / "other").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))
    pods.start()
    assert pods.codes() == [74], pods.logs()
    assert "No space left on device" in pods.log(0)
    assert "Traceback" not in pods.log(0)


def test_trainers_that_wait_for_pservers_have_nothing_to_save(job):
    pods = job(count=2, stand_in={"waits": True, "deaf": True})
    pods.start()
    for index in (0, 1):
        pods.wait_for(index, "attempt 1: pserver")
    pods.terminate(0)
    assert pods.pods[0].wait(90) == 143, pods.logs()
    pods.terminate(1)
    assert pods.codes() == [143, 143], pods.logs()


def test_a_volume_that_hangs_from_the_beginning_is_left(job):
    # A pipe that nobody writes: whoever opens it to read waits for ever, as on an NFS mount that has lost its server.
    pods = job(count=2, PEER_DEADLINE="3")
    pods.folder.run_state.mkdir(parents=True)
    os.mkfifo(pods.folder.run_state / "attempts.json")
    pods.start()
    assert pods.codes() == [75, 75], pods.logs()
    assert "nothing can be read there" in pods.log(0)


def test_a_volume_that_hangs_before_the_attempt_is_left(job):
    # Where the pods have met, the first that the attempt asks is which pass it begins with.
    pods = job(count=2, PEER_DEADLINE="3")
    saved = pods.folder.attempt("run-0", 1) / "pass-00000"
    saved.mkdir(parents=True)
    os.mkfifo(saved / "done")
    pods.start()
    assert pods.codes() == [75, 75], pods.logs()
    for index in (0, 1):
        assert "nothing can be recorded there" in pods.log(index)


@pytest.mark.skipif(shutil.which("strace") is None, reason="only strace can make a volume hang here")
def test_a_volume_that_hangs_during_training_takes_no_outcome(job):
    """Each fsync of the agent really takes 7 s longer than it would: strace holds the system call up."""
    pods = job(count=2, stand_in={"holds": [1, 0, 1]}, PEER_DEADLINE="6")
    pods.start_and_hold()
    slowed = ["strace", "-f", "-e", "trace=fsync", "-e", "inject=fsync:delay_enter=7000000", "-o", "/dev/null"]
    with subprocess.Popen([*slowed, "-p", str(pods.pods[0].pid)], stderr=subprocess.PIPE, text=True) as tracer:
        attached = tracer.stderr.readline()
        if "attached" not in attached:
            pytest.skip(f"strace may not work here: {attached.strip()}")
        try:
            pods.release()
            assert pods.codes() == [75, 75], pods.logs()
        finally:
            tracer.kill()  # A pod that does not end would be waited for.
    assert "output/run takes no outcome" in pods.log(1)


SAVES_AND_ENDS = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("trains", flush=True)
while not Path(sys.argv[1], "goes-on").exists():
    time.sleep(0.02)
"""


def test_a_command_that_ends_well_because_it_was_told_to_stop_is_not_done(job):
    """† A node was drained: both processes answered SIGTERM with 0, and the job was complete in the middle of its work."""
    agent = Path(__file__).parents[2] / "trainer_image/paddle_node/__main__.py"
    pods = job(count=2, program=agent, RUNTIME="launch")
    pods.variables["COMMAND"] = json.dumps([sys.executable, "train.py", str(pods.folder.root)])
    (pods.folder.program("quick_start") / "train.py").write_text(SAVES_AND_ENDS)
    pods.start()
    for index in (0, 1):
        pods.wait_for(index, r"\] trains")
    pods.terminate(1)
    assert pods.pods[1].wait(90) == 143, pods.logs()
    pods.start(1)
    pods.release()
    assert pods.codes() == [0, 0], pods.logs()
    assert [one["kind"] for one in pods.attempts()] == ["stopped", "stopped"] and pods.attempts()[0]["cause"] != "done"


def test_a_command_that_cannot_be_started_is_said_and_not_tried_again(job):
    agent = Path(__file__).parents[2] / "trainer_image/paddle_node/__main__.py"
    pods = job(count=1, program=agent, RUNTIME="launch", COMMAND='["./train.sh"]')
    (pods.folder.program("quick_start") / "train.sh").write_text("exit 0\n")  # Nobody made it executable.
    pods.start()
    assert pods.codes() == [126], pods.logs()
    assert "./train.sh cannot be started: Permission denied" in pods.folder.train_log(0).read_text()
    assert "is not tried again: trainer 0 ended with 126" in pods.log(0)
