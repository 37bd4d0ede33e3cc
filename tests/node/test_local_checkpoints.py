"""`checkpoints: local`: what a command's pods have on their scratch, what of it reaches the volume,
and what a resume takes: real pods, whose programs are plain Python.
"""

import hashlib
import json
import os
import pickle
import signal
from pathlib import Path

import pytest
from node_pods import StandIns
from test_command_files import command, digests  # noqa: F401

pytestmark = pytest.mark.slow

SAVES = """
import pickle
number = int(resumed.rpartition("-")[2]) if resumed else 0
def content(number, rank):
    return pickle.dumps(f"{number} {rank} ".encode() * 20_000)
if resumed:
    for of in [rank] if OWN else range(RANKS):
        assert (Path(resumed) / f"part-{of}").read_bytes() == content(number, of), (number, of)
    assert OWN or sorted(os.listdir(resumed)) == sorted(f"part-{of}" for of in range(RANKS))
def save(number):
    folder = output / f"step-{number}"
    folder.mkdir(exist_ok=True)
    if rank < RANKS:
        (folder / f"part-{rank}").write_bytes(content(number, rank))
    print("saved", number, flush=True)
"""
"""Each of RANKS ranks saves its own part, and every rank checks all parts when it resumes, or its
OWN.
"""


def local(command, program, count=1, ranks=None, own=False, **more) -> StandIns:  # noqa: F811
    settings = {
        "RESUME": '["{newest:output/step-*}"]',
        "CHECKPOINTS": "local",
        "CHECKPOINT_FILES": '["part-{rank}"]' if ranks is None else '["part-0"]',
        "ATTEMPTS": "9",
    }
    text = f"OWN, RANKS = {own}, {count if ranks is None else ranks}\n" + SAVES + program
    return command(text, count=count, **(settings | more))


def scratch(pods: StandIns, index: int) -> Path:
    return pods.pods[index].life / "root/home/paddle/attempts"


def published(pods: StandIns) -> list[str]:
    folder = pods.folder.attempts / "newest/published"
    return [json.loads(file.read_text())["name"] for file in sorted(folder.glob("*.json"))]


ENDS = """
save(1)
(output / "log.txt").write_text("the end")
os.symlink("log.txt", output / "link.txt")
"""


@pytest.mark.parametrize("count", [1, 2])
def test_everything_is_on_the_volume_when_the_job_has_ended(command, count):  # noqa: F811
    pods = local(command, ENDS, count)
    pods.start()
    log = pods.end_with(*[0] * count)
    assert "is not copied" not in log
    files = digests(pods.folder.output)
    for rank in range(count):
        content = pickle.dumps(f"1 {rank} ".encode() * 20_000)
        assert files[f"step-1/part-{rank}"] == hashlib.sha256(content).hexdigest()
    assert (pods.folder.output / "log.txt").read_text() == "the end"
    assert (pods.folder.output / "link.txt").readlink() == Path("log.txt")


KILLED = """
if attempt == 1:
    save(1)
    save(2)
    wait("released")
print("resumed from", number, flush=True)
assert number == 2
save(3)
"""


def test_a_killed_process_resumes_from_the_scratch_without_a_copy(command):  # noqa: F811
    pods = local(command, KILLED, 2, own=True)
    pods.start()
    for index in (0, 1):
        pods.wait_for(index, "saved 2")
    # Nobody can copy now.
    for folder in pods.folder.attempts.iterdir():
        if not folder.is_symlink():
            (folder / "copies").write_text("no folder")
    os.kill(pods.child(1, "trainer"), signal.SIGKILL)
    for index in (0, 1):
        pods.wait_for(index, "resumed from 2")
    pods.end_with(0, 0)
    assert digests(pods.folder.output).keys() >= {"step-3/part-1", "step-2/part-0", "step-1/part-1"}


@pytest.mark.parametrize("lost", [0, 1])
def test_a_replaced_pod_resumes_from_the_newest_on_the_volume(command, lost):  # noqa: F811
    pods = local(command, KILLED, 2)
    pods.start()
    pods.wait_until(lambda: "output/step-2" in published(pods))
    pods.kill(lost)
    pods.start(lost)
    for index in (0, 1):
        pods.wait_for(index, "resumed from 2")
    pods.end_with(0, 0)


def test_pods_that_lack_files_get_them_by_the_volume(command):  # noqa: F811
    pods = local(command, KILLED, 2, ranks=1)  # Rank 0 saves for all.
    pods.start()
    for index in (0, 1):
        pods.wait_for(index, "saved 2")
    os.kill(pods.child(1, "trainer"), signal.SIGKILL)
    for index in (0, 1):
        pods.wait_for(index, "resumed from 2")
    pods.end_with(0, 0)


def test_a_container_that_restarts_finds_its_scratch(command):  # noqa: F811
    pods = local(command, KILLED, 1)
    pods.start()
    pods.wait_for(0, "saved 2")
    (next(pods.folder.attempts.glob("run-1-1")) / "copies").write_text("nobody can copy")
    life = pods.pods[0].life
    pods.kill(0)
    pods.root = lambda _: life / "root"
    pods.start(0)
    pods.wait_for(0, "resumed from 2")
    pods.end_with(0)


MANY = """
for number in range(number + 1, 41):
    save(number)
    if number > 2:
        shutil.rmtree(output / f"step-{number - 2}", ignore_errors=True)
    time.sleep(0.2)
    if number == 30 and attempt == 1:
        wait("released")
"""


def test_copies_that_fall_behind_skip_and_deletions_are_followed(command):  # noqa: F811
    pods = local(command, MANY, 2)
    pods.start()
    for index in (0, 1):
        pods.wait_for(index, "saved 30")
    pods.wait_until(lambda: "output/step-30" in published(pods))
    # What the program has deleted is deleted.
    pods.wait_until(lambda: len(published(pods)) <= 2)
    pods.kill(1)
    pods.start(1)
    log = pods.end_with(0, 0)
    assert "skipped on the way to the volume" in pods.logs()
    assert "training starts from output/step-30" in log
    names = {name.split("/")[0] for name in digests(pods.folder.output)}
    assert names == {"step-39", "step-40"}


LATEST = """
def content(number):
    return f"{number} ".encode() * 40_000
file = output / "latest.bin"
number = 0
if resumed:
    number = int(Path(resumed).read_bytes().split()[0])
    assert Path(resumed).read_bytes() == content(number), "half"
    print("resumed from", number, flush=True)
for number in range(number + 1, 1000):
    if rank == 0:
        file.write_bytes(content(number))
    if attempt == 3 and number % 20 == 10:
        break
    time.sleep(0.05 if number % 20 else 4)
"""


def test_a_file_that_is_rewritten_in_place_is_never_taken_half(command):  # noqa: F811
    pods = command(
        LATEST, count=2, RESUME='["{newest:output/latest.bin}"]', CHECKPOINTS="local",
        CHECKPOINT_FILES='["{stem}.bin"]',
    )  # fmt: skip
    pods.start()
    pods.wait_until(lambda: published(pods) == ["output/latest.bin"])
    pods.kill(0)
    pods.start(0)
    pods.wait_for(0, "resumed from")
    os.kill(pods.child(0, "trainer"), signal.SIGKILL)
    pods.wait_for(0, "attempt 3: trainer")
    pods.end_with(0, 0)
    assert "half" not in pods.logs()


def test_a_full_scratch_sends_checkpoints_to_the_volume(command):  # noqa: F811
    program = """
for number in range(number + 1, 6):
    save(number)
    time.sleep(2)
"""
    pods = local(command, program, 1, STAGE_ROOM="350000")
    pods.start()
    pods.end_with(0)
    log = pods.logs()
    assert log.count("checkpoints go to the volume") >= 1
    assert {f"step-{number}/part-0" for number in range(1, 6)} <= digests(pods.folder.output).keys()
    assert [attempt["number"] for attempt in pods.attempts()] == [1, 2]


def test_a_thawed_pod_changes_no_byte(command):  # noqa: F811
    pods = local(command, KILLED, 2)
    pods.start()
    pods.wait_until(lambda: "output/step-2" in published(pods))
    old, trainer = pods.pods[0], pods.child(0, "trainer")
    for pid in (trainer, old.pid):
        os.kill(pid, signal.SIGSTOP)
    pods.replaced[0] += 1
    pods.start(0)
    for index in (0, 1):
        pods.wait_for(index, "resumed from 2")
    pods.end_with(0, 0)
    written = digests(pods.folder.output)
    os.kill(trainer, signal.SIGCONT)
    os.kill(old.pid, signal.SIGCONT)
    old.wait(60)
    assert digests(pods.folder.output) == written


def test_what_a_failed_job_has_written_is_on_the_volume(command):  # noqa: F811
    program = """
save(1)
(output / "why.txt").write_text("here")
sys.exit(9)
"""
    pods = local(command, program, 1, ATTEMPTS="1")
    pods.start()
    assert pods.codes() != [0]
    assert {"step-1/part-0", "why.txt"} <= digests(pods.folder.output).keys()


STOPPED = """
def stop(*_):
    save(5)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
if attempt == 1:
    save(1)
    wait("released")
assert number == 5, number
"""


def test_what_is_saved_at_sigterm_is_on_the_volume_before_the_pods_leave(command):  # noqa: F811
    pods = local(command, STOPPED, 2)
    pods.start()
    for index in (0, 1):
        pods.wait_for(index, "waits for released")
    pods.terminate()
    pods.codes()
    pods.start()
    pods.end_with(0, 0)


def test_a_damaged_copy_on_the_volume_is_not_taken(command):  # noqa: F811
    program = """
if attempt == 1:
    save(1)
    wait("second")
    save(2)
    wait("released")
assert number == 1, number
"""
    pods = local(command, program, 1)
    pods.start()
    pods.wait_until(lambda: "output/step-1" in published(pods))
    (pods.place / "second").touch()
    newest = pods.folder.attempts / "newest/output/step-2/part-0"
    # Its record comes first.
    pods.wait_until(lambda: "output/step-2" in published(pods) and newest.exists())
    newest.write_bytes(b"x" * newest.stat().st_size)
    pods.kill(0)
    pods.start(0)
    pods.end_with(0)
    assert "step-2/part-0 is damaged" in pods.logs()


CUT_OFF = """
if attempt == 1:
    save(1)
    wait("second")
    (output / "step-2").mkdir()
    (output / "step-2/part-0").write_bytes(b"no file that shows its end")
    print("half", flush=True)
    wait("released")
assert number == 1, number
"""


@pytest.mark.parametrize("victim", ["process", "container"])
def test_a_file_that_does_not_show_its_end_is_not_taken_if_its_writer_was_killed(
    command,  # noqa: F811
    victim,
):
    pods = local(command, CUT_OFF, 1)
    pods.start()
    pods.wait_until(lambda: published(pods) == ["output/step-1"])
    (pods.place / "second").touch()
    pods.wait_for(0, "half")
    if victim == "process":
        os.kill(pods.child(0, "trainer"), signal.SIGKILL)
    else:
        life = pods.pods[0].life
        pods.kill(0)
        pods.root = lambda _: life / "root"
        pods.start(0)
    pods.end_with(0)


def test_what_was_skipped_follows_while_nothing_newer_comes(command):  # noqa: F811
    pods = local(command, 'for number in range(1, 6):\n    save(number)\nwait("released")\n')
    pods.start()
    pods.wait_until(
        lambda: {f"output/step-{number}" for number in range(1, 6)} == {*published(pods)}
    )
    assert published(pods)[0] == "output/step-5", "the newest goes first"
    pods.release()
    pods.end_with(0)


LOGGED = """
log = (output / "log.txt").open("a")
def tell(text):
    log.write(f"{text}\\n")
    log.flush()
def write_all(number):
    tell(number)
    (output / f"rank-{rank}.json").write_text(json.dumps({"number": number, "x": "x" * 50_000}))
    (output / "draft").write_text(f"{number}")
    (output / "draft").replace(output / "latest")
tell(-rank)
if attempt == 1:
    Path(os.fsdecode(b"output/odd\\n\\xff")).write_text("odd")
    (output / "gone").write_text("gone")
    write_all(1)
    save(1)
    wait("second")
    (output / "gone").unlink()
    write_all(2)
    save(2)
    print("last", flush=True)
    while not (place / "released").exists():
        write_all(2.5)
        time.sleep(0.03)
assert number == 2, number
numbers = {float(line) for line in (output / "log.txt").read_text().split()}
assert numbers >= {1, 2}, numbers
assert float((output / "latest").read_text()) >= 2
if LOST:  # Who is killed while it writes a file anew leaves the half of it on its own disk.
    assert json.loads((output / f"rank-{rank}.json").read_text())["number"] >= 1
assert not (output / "gone").exists()
assert Path(os.fsdecode(b"output/odd\\n\\xff")).read_text() == "odd"
tell(3)
save(3)
"""


@pytest.mark.parametrize("victim", ["pod", "process"])
def test_other_files_end_no_earlier_than_the_checkpoint_they_go_with(command, victim):  # noqa: F811
    pods = local(command, f"LOST = {victim == 'pod'}\n{LOGGED}", 2)
    pods.start()
    pods.wait_until(lambda: published(pods) == ["output/step-1"])
    pods.wait_until((pods.folder.attempts / "newest/output/gone").exists)
    (pods.place / "second").touch()
    pods.wait_for(0, "last")
    pods.wait_until(lambda: "output/step-2" in published(pods))
    if victim == "pod":
        for index in (0, 1):
            pods.kill(index)
            pods.start(index)
    else:
        os.kill(pods.child(0, "trainer"), signal.SIGKILL)
    pods.end_with(0, 0)
    lines = (pods.folder.output / "log.txt").read_text().split()
    assert lines[-1] == "3" and not (pods.folder.output / "gone").exists()
    assert (pods.folder.output / "pod-1/log.txt").read_text().split()[-1] == "3"


LINKED = """
if attempt == 1:
    (output / "base").write_text("base")
    save(1)
    for name, to in LINKS.items():
        (output / "step-1" / name).symlink_to(to)
    (output / "real").symlink_to(os.path.realpath(output / "base"))
    (output / "latest").symlink_to("step-1")
    wait("released")
assert number == 1
for name, to in LINKS.items():
    assert os.readlink(output / "step-1" / name) == to, name
assert (output / "step-1/best").read_bytes() == content(1, 0)
assert (output / "step-1/base").read_text() == (output / "real").read_text() == "base"
assert (output / "latest/part-0").exists()
"""


@pytest.mark.parametrize("victim", ["pod", "process"])
def test_links_are_part_of_their_checkpoint(command, victim):  # noqa: F811
    links = {"best": "part-0", "base": "../base", "out": "/etc/hostname", "nowhere": "../../../x"}
    program = LINKED.replace("LINKS", repr(links))
    pods = local(command, program.replace("save(3)", ""), 1, own=True)
    pods.start()
    pods.wait_until(lambda: published(pods) == ["output/step-1"])
    step = pods.folder.attempts / "newest/output/step-1"
    pods.wait_until(lambda: all((step / name).is_symlink() for name in links))
    assert {name: str((step / name).readlink()) for name in links} == links
    if victim == "pod":
        pods.kill(0)
        pods.start(0)
    else:
        os.kill(pods.child(0, "trainer"), signal.SIGKILL)
    pods.end_with(0)
    assert (pods.folder.output / "real").read_text() == "base"
    assert (pods.folder.output / "latest/best").exists()
