"""What a command's attempts write, resume from and count as done: real pods, whose programs are
plain Python.
"""

import contextlib
import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from node_pods import ENTRY, StandIns, runs

pytestmark = pytest.mark.slow

HEAD = """
import contextlib, json, os, shutil, signal, sys, time
from pathlib import Path
attempt, rank = int(os.environ["PADDLE_NODE_ATTEMPT"]), int(os.environ["RANK"])
place = Path(os.environ["PLACE"])
output = Path("output")
resumed = sys.argv[1] if len(sys.argv) > 1 else ""
print("begins", resumed, flush=True)
def wait(name):
    print("waits for", name, flush=True)
    while not (place / name).exists():
        time.sleep(0.01)
"""


@pytest.fixture
def command(job):
    """Makes a job of this program; `files` lie beside it, in the program's folder."""

    def make(program: str, files: dict[str, str] | None = None, count: int = 1, **more) -> StandIns:
        pods = job(count=count, program=ENTRY, RUNTIME="launch", **more)
        pods.variables["COMMAND"] = json.dumps([sys.executable, "train.py"])
        folder = pods.folder.program("quick_start")
        for name, text in ({"train.py": HEAD + program} | (files or {})).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        own = pods.environment
        pods.environment = lambda index, **more: own(index, **more) | {"PLACE": str(pods.place)}
        return pods

    return make


def digests(folder: Path) -> dict[str, str]:
    """The content of every file that a command has left, by its name in output/."""
    seen = {}
    for top in folder.iterdir():
        if top.name in ("run", "attempts", "node_0", "node_1", "set-aside"):
            continue
        for path in [top, *top.rglob("*")]:
            if path.is_file():
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                seen[path.relative_to(folder).as_posix()] = content
    return seen


WRITES = """
if rank:
    wait("released")
    sys.exit()
output.mkdir(exist_ok=True)
if attempt == 1:
    (output / "state").write_bytes(bytes(4096))
    (output / "old").mkdir()
    (output / "old/untouched").write_text("as it was")
log, state = open(output / "log.txt", "a"), open(output / "state", "r+b")
for step in range(10**9):
    log.write(f"attempt {attempt} step {step}\\n")
    log.flush()
    state.seek(step % 4096)
    state.write(bytes([attempt]))
    state.flush()
    with contextlib.suppress(FileNotFoundError):  # It is taken away between two calls.
        os.makedirs(os.path.realpath("output"), exist_ok=True)  # Where its folder is gone by now.
        with open(output / "steps.txt", "a") as steps:
            steps.write(f"{attempt} {step}\\n")
        (output / "latest.json").write_text(json.dumps({"attempt": attempt, "step": step}))
        if step % 10 == 0:
            (output / f"step-{step:06d}").write_text(f"{attempt}")
    if step == 100:
        print("wrote", flush=True)
    if attempt > 1 and step == 100:
        wait("released")
        sys.exit()
    time.sleep(0.001)
"""


def test_a_pod_0_frozen_replaced_and_thawed_changes_no_byte_of_its_successors_files(command):
    pods = command(WRITES, count=2, RESUME='["{newest:output/step-*}"]')
    pods.start()
    pods.wait_for(0, "wrote")
    old, trainer = pods.pods[0], pods.child(0, "trainer")
    for pid in (trainer, old.pid):
        os.kill(pid, signal.SIGSTOP)
    pods.replaced[0] += 1  # A new pod at a new address.
    pods.start(0)
    pods.wait_for(0, "wrote")
    pods.wait_for(0, "waits for released")
    written = digests(pods.folder.output)
    assert {"log.txt", "steps.txt", "state", "latest.json", "old/untouched"} < set(written)
    os.kill(trainer, signal.SIGCONT)  # Its agent still sleeps: nobody ends it.
    steps = Path(f"/proc/{trainer}/io")
    before = int(steps.read_text().split("wchar: ")[1].split()[0])
    pods.wait_until(lambda: int(steps.read_text().split("wchar: ")[1].split()[0]) > before + 20_000)
    assert digests(pods.folder.output) == written
    os.kill(old.pid, signal.SIGCONT)
    assert old.wait(60) == 76, pods.logs()
    assert not runs(trainer)
    pods.release()
    pods.end_with(0, 0)
    assert digests(pods.folder.output) == written
    assert (pods.folder.output / "log.txt").read_text().count("attempt 2") == 101


STEPS = """
first = 0
if resumed:
    first = int(resumed.rpartition("-")[2])
for step in range(first, 100):
    {fault}
    if step % 10 == 0:
        output.mkdir(exist_ok=True)
        (output / f"step-{{step}}").write_text(f"{{time.time()}}")
"""
"""Saves its place every tenth step, and once more where it resumes."""


@pytest.mark.parametrize(("fault", "settings", "tried"), [
    ('if step == 50: raise ValueError("always here")', {}, 4),
    # Without a traceback no attempt says that it failed as the one before.
    ("if step == 50: sys.exit(9)", {}, 4),
    ("if step == 50: time.sleep(3600)", {"STALL": "2"}, 4),
    # It never resumes, so each attempt saves all of its checkpoints again.
    ("if step == 50: sys.exit(9)", {"RESUME": "[]", "PROGRESS": "output/step-*"}, 4),
], ids=["exception", "code", "hang", "from nothing"])  # fmt: skip
def test_a_checkpoint_saved_again_is_no_progress_and_the_attempts_end(
    command, fault, settings, tried
):
    settings = {"RESUME": '["{newest:output/step-*}"]'} | settings
    pods = command(STEPS.format(fault=fault), ATTEMPTS="3", **settings)
    pods.start()
    assert pods.codes()[0] != 0
    made = [attempt["made"] for attempt in pods.attempts()]
    assert made == ["output/step-40", *[""] * (tried - 1)], pods.logs()


LATEST = """
latest = output / "latest.json"
state = json.loads(Path(resumed).read_text()) if resumed else {"epoch": -1}
output.mkdir(exist_ok=True)
for epoch in range(state["epoch"] + 1, 6):
    if epoch == 4 and attempt < 4:
        print("trains epoch 4", flush=True)
        time.sleep(3600)
    latest.write_text(json.dumps({"epoch": epoch}))
    print("saved", epoch, flush=True)
"""


def test_two_kills_before_the_next_save_lose_no_checkpoint(command):
    pods = command(LATEST, RESUME='["{newest:output/latest.json}"]')
    pods.start()
    for attempt in (1, 2, 3):
        pods.wait_for(0, f"attempt {attempt}: trainer 0 is process")
        pods.wait_until(lambda n=attempt: pods.log(0).count("trains epoch 4") == n)
        os.kill(pods.child(0, "trainer"), signal.SIGKILL)
    said = pods.end_with(0)
    # `saved 3` once: no attempt trained an epoch again that was saved.
    assert [said.count(f"saved {epoch}") for epoch in range(6)] == [1] * 6


TORN = """
output.mkdir(exist_ok=True)
if resumed and Path(resumed).read_text() == "torn":
    raise EOFError(f"{resumed} is torn")
done = int(resumed.rpartition("-")[2]) if resumed else -1
for epoch in range(done + 1, 4):
    if epoch == 3 and attempt == 1:
        (output / "epoch-2").write_text("torn")
        os.kill(os.getpid(), signal.SIGKILL)
    (output / f"epoch-{epoch}").write_text("whole")
"""


def test_only_a_file_that_fails_to_load_is_passed_over_and_nothing_begins_over_the_others(command):
    pods = command(TORN, RESUME='["{newest:output/epoch-*}"]', ATTEMPTS="3")
    pods.start()
    said = pods.end_with(0)
    assert "output/epoch-2 is skipped: two attempts that resumed from it failed" in said
    begun = [attempt["resume"].get("newest") for attempt in pods.attempts()]
    assert begun == [None, "output/epoch-2", "output/epoch-2", "output/epoch-1"]
    assert (pods.folder.output / "epoch-3").read_text() == "whole"


def test_where_no_older_file_is_left_the_setting_decides_and_the_file_stays(command):
    single = TORN.replace("epoch-2", "epoch-9").replace('f"epoch-{epoch}"', '"log"')
    pods = command(single, RESUME='["{newest:output/epoch-*}"]', ATTEMPTS="3")
    pods.start()
    assert pods.codes() == [1]  # The program's own.
    assert (
        "3 attempts ended without progress: attempt 2: trainer 0 ended with 1: EOFError: "
        in pods.log(0)
    )
    assert (pods.folder.output / "epoch-9").read_text() == "torn"


def test_a_program_s_own_output_folder_is_no_scratch_and_brings_its_files(command):
    program = """
assert (output / "words/known.txt").read_text() == "a b c"
assert not (output / "epoch-7").exists()
(output / "result.json").write_text("{}")
"""
    files = {"output/.gitkeep": "", "output/words/known.txt": "a b c", "output/epoch-7": "mine"}
    pods = command(
        program, files, RESUME='["{newest:output/epoch-*}"]', SUCCESS="output/result.json"
    )
    pods.start()
    assert "output/epoch-7 of the program's folder would count as a checkpoint" in pods.end_with(0)
    assert {"result.json", "words/known.txt", ".gitkeep"} == digests(pods.folder.output).keys()
    assert not (pods.folder.output / "result.json").is_symlink()


@pytest.mark.parametrize("lasts", [0, 60])
def test_a_program_that_replaces_output_by_a_folder_of_its_own_is_refused(command, lasts):
    program = f"""
os.system("rm -rf output && mkdir output")
(output / "model").write_text("x")
time.sleep({lasts})
"""
    pods = command(program)
    pods.start()
    assert pods.codes() == [2]
    assert "the program has replaced `output`, which leads to the volume, by a folder" in pods.log(
        0
    )


def test_a_program_that_empties_output_deletes_nothing_of_the_agents(command):
    program = """
os.system("rm -rf output/*")
(output / "model").write_text("x")
wait("released")
"""
    pods = command(program, LEASE="3")
    pods.start()
    pods.wait_for(0, "waits for released")
    # While it runs, people and tools find its files as well.
    pods.wait_until((pods.folder.output / "model").exists)
    lease = pods.folder.run_state / "lease-00001.json"
    beats = json.loads(lease.read_text())["beats"]
    pods.wait_until(lambda: json.loads(lease.read_text())["beats"] > beats + 9)
    pods.release()
    pods.end_with(0)
    assert digests(pods.folder.output).keys() == {"model"}


def test_a_pod_0_killed_as_it_publishes_is_made_up_for_by_its_replacement(command):
    program = """
for number in range(10_000):
    (output / f"file-{number}").touch()
"""
    pods = command(program)
    pods.start()
    record = pods.folder.run_state / "attempts.json"
    pods.wait_until(lambda: record.exists() and '"outcomes": {}' not in record.read_text())
    pods.kill(0)
    pods.start(0)
    assert pods.codes() == [0], pods.logs()
    assert len(digests(pods.folder.output)) == 10_000
    assert not any(path.is_symlink() for path in pods.folder.output.iterdir())


SUCCESS = """
done = output / "done"
if attempt == 1:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    done.write_text("by attempt 1")
    os.kill(os.getpid(), signal.SIGKILL)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if attempt == 2:
    wait("never")
(place / "older").write_text("copied")
os.utime(place / "older", (1, 1))
shutil.copy2(place / "older", done)
"""


def test_only_the_success_file_of_this_attempt_counts_whatever_its_time(command):
    pods = command(SUCCESS, SUCCESS="output/done")
    pods.start()
    pods.wait_for(0, "waits for never")
    pods.terminate(0)
    assert pods.codes() == [143]
    assert [attempt["kind"] for attempt in pods.attempts()] == ["program", "stopped"]
    pods.start(0)
    pods.end_with(0)
    assert pods.attempts()[-1]["cause"] == "done"
    assert (pods.folder.output / "done").read_text() == "copied"
    # Another run writes none: it has not done what the earlier file says.
    again = command("", run="run-2", SUCCESS="output/done", ATTEMPTS="1")
    again.start()
    assert again.codes() == [70]
    assert "output/done, by which the command says that it is done, was not written in this" in (
        again.log(0)
    )


def test_names_that_are_no_numbers_in_any_language_are_taken_as_they_are(command):
    program = """
output.mkdir(exist_ok=True)
if not resumed:
    for name in ("7²", "٣", "\\udcff", "step-9"):
        (output / name).write_text("x")
    sys.exit(3)
"""
    pods = command(program, RESUME='["{newest:output/*}"]')
    pods.start()
    pods.end_with(0)
    assert pods.attempts()[1]["resume"]["newest"] == "output/step-9"


def test_another_program_s_files_are_set_aside_and_come_back_with_it(command):
    program = """
assert (output / "kept").exists() == ("PADDLE_NODE_KEPT" in os.environ)
(output / "kept").write_text(Path("train.py").read_text())
kept = output / "kept"
for name, target in (("real", kept.resolve()), ("absolute", kept.absolute())):
    if not (output / name).exists():
        assert not (output / name).is_symlink()
        (output / name).symlink_to(target)
"""
    for run, whose, kept in (("a", "one", {}), ("b", "two", {}), ("c", "one", {"KEPT": "yes"})):
        pods = command(f"# {whose}\n{program}", run=run, **kept)
        pods.start()
        pods.end_with(0)
        for name in ("kept", "real", "absolute"):
            assert f"# {whose}" in (pods.folder.output / name).read_text()
    (aside,) = pods.folder.set_aside.glob("*/output/kept")
    assert "# two" in aside.read_text()
    any_run = command(f"# three\n{program}", run="d", KEPT="yes", RESUME_FROM="any")
    any_run.start()
    any_run.end_with(0)


def test_what_starts_over_is_lost_time(command):
    program = """
output.mkdir(exist_ok=True)
for epoch in range(3):
    time.sleep(0.5)
    (output / f"epoch-{epoch}").write_text("x")
if attempt == 1:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    pods = command(program, PROGRESS="output/epoch-*")
    pods.start()
    pods.end_with(0)
    first, second = (attempt["seconds"] for attempt in pods.attempts())
    assert first["training"] == 0 and first["lost"] > 1.4
    assert second["training"] > 1.4 and second["lost"] == 0


def test_a_pattern_that_matches_nothing_is_said_with_what_is_there(command):
    program = """
output.mkdir(exist_ok=True)
(output / "epoch-1").write_text("x")
if attempt == 1:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    pods = command(program, RESUME='["{newest:output/ep_*}"]')
    pods.start()
    sentence = "nothing matches output/ep_*, so this attempt starts over; output/ has epoch-1"
    assert sentence in pods.end_with(0)


COUNTS = """
if rank or attempt > 1:
    wait("released")
    sys.exit()
with open(place / "steps", "a") as steps:
    while not (place / "released").exists():
        steps.write("x")
        steps.flush()
        time.sleep(0.001)
"""


def test_a_thawed_pod_0_ends_its_processes_at_once(
    command,
):
    pods = command(COUNTS, count=2)
    pods.start()
    steps = pods.place / "steps"
    pods.wait_until(lambda: steps.exists() and steps.stat().st_size > 100)
    agent, trainer = pods.pods[0], pods.child(0, "trainer")
    for pid in (trainer, agent.pid):
        os.kill(pid, signal.SIGSTOP)
    pods.replaced[0] += 1
    pods.start(0)
    pods.wait_for(0, "waits for released")
    before = steps.stat().st_size
    os.kill(agent.pid, signal.SIGCONT)
    with contextlib.suppress(ProcessLookupError):  # Its agent may have ended it by now.
        os.kill(trainer, signal.SIGCONT)
    pods.wait_until(lambda: not runs(trainer))
    assert steps.stat().st_size < before + 100  # Of a millisecond each.
    pods.release()
    pods.end_with(0, 0)
