"""`checkpoints: local` without pods: what the rendezvous makes of what agents say, and what an
agent says of its scratch.
"""

import errno
import json
import os
import shutil
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from node_pods import GOOD
from paddle_node import environment, retry
from paddle_node.agent.local import checkpoints, filling, other_files, scratch
from paddle_node.agent.local.output import Abandoned, LocalOutput
from paddle_node.contract import ExitCode
from paddle_node.rendezvous import effects as e
from paddle_node.rendezvous import events as on
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.saves import Saves
from paddle_node.runtimes import Resumption
from paddle_node.volume import durable, publication
from reducer import Run


def begin(full: str = "") -> Saves:
    saves = Saves(SimpleNamespace(trainers=1, command=SimpleNamespace(processes=1)), None)
    saves.full = full
    saves.begin(1, Resumption())
    return saves


def hear(saves: Saves, parts: dict, final: bool = False, **more: str) -> None:
    saves.hear(0, m.Saves(1, final, parts, **more))


def checkpoint(name: str, content: str, changed: int) -> dict:
    return {name: m.Part(changed, {f"{name}/part": (3, content)})}


def copy(saves: Saves, parts: dict, fault: str = "") -> m.Copy:
    (asked,) = saves.advance()
    hear(saves, parts, copied=asked.key)
    (question,) = saves.advance()
    saves.note_published(question.key, fault)
    return question


def test_what_could_not_be_copied_at_the_end_is_missing():
    saves = begin()
    hear(saves, {}, final=True)
    assert saves.advance(final=True, rest=True)
    hear(saves, {}, final=True, failed="rest")
    assert saves.advance(final=True, rest=True) is None
    assert saves.missing == "what they wrote could not be copied to the volume"
    saves.begin(2, Resumption())
    assert not saves.missing


def test_an_attempt_that_wrote_to_the_volume_has_nothing_to_copy():
    saves = begin(full="the scratch has no room")
    hear(saves, {}, final=True, full="the scratch has no room")
    assert saves.advance(final=True, rest=True) is None and not saves.missing


def test_what_was_deleted_on_the_volume_is_copied_again():
    saves, best = begin(), checkpoint("output/best", "a", 1)
    hear(saves, best)
    copy(saves, best)
    second = checkpoint("output/step-2", "b", 2)
    hear(saves, second)
    assert copy(saves, second).gone == ("output/best",)
    both = second | checkpoint("output/best", "a", 3)
    hear(saves, both)
    assert copy(saves, both).name == "output/best"


@pytest.mark.parametrize("name", ["/etc/step-1", "output/../../step-1", "step-1", "output"])
def test_a_name_outside_the_output_is_nobodys_checkpoint(name):
    saves = begin()
    hear(saves, {"output/step-1": m.Part(1, {name: (3, "a")})})
    assert not saves.list_complete()
    hear(saves, checkpoint(name, "a", 1))
    assert not saves.list_complete()


@pytest.fixture
def run(tmp_path, request):
    """A run of two pods whose first attempt has begun."""
    settings = {"CHECKPOINTS": "local", "RESUME": '["{newest:output/step-*}"]', "STALL": "60"}
    run = Run(tmp_path, **settings, ATTEMPTS=getattr(request, "param", "1"))
    run.come()
    say(run, 0, final=True)
    say(run, 1)
    run.train()
    return run


def say(run: Run, attempt: int, final: bool = False, **more: str) -> None:
    """Both agents say that their scratch has no checkpoint."""
    for rank in (0, 1):
        run.tell(rank, m.Saves(attempt, final, {}, **more))


@pytest.mark.parametrize("copied", ["", "rest"])
def test_a_job_is_not_done_if_the_last_copy_failed(run, copied):
    for rank in (0, 1):
        run.report(rank, ended="trained")
    say(run, 1, final=True)
    assert run.outcome is None
    copies = run.pod.folder.attempt(run.pod.run_id, 1) / "copies/rest"
    for rank in (0, 1):
        log = copies / f"{rank}/output/log"
        log.parent.mkdir(parents=True)
        log.write_text("text")
        publication.list_part(copies.parents[1], "rest", rank, {}, {"output/log": [4, "x"]})
    say(run, 1, final=True, failed="rest", copied=copied)
    run.clear()
    assert (copies.parents[1] / "output/log").exists() == bool(copied)
    assert run.outcome.code == ExitCode.ATTEMPTS_EXHAUSTED
    assert "ended with 0, but what they wrote could not be copied" in run.outcome.sentence


def test_a_copy_that_does_not_move_holds_up_no_job(run):
    run.fall(0, 1)
    run.clear()
    say(run, 1, final=True)
    for seconds in range(70):
        run.now += 1
        for rank in (0, 1):  # The volume answers one of them alone.
            run.tell(rank, m.Beat(quiet=float(seconds)))
        run.handle(on.Ticked(False))
    assert run.outcome.code == ExitCode.ATTEMPTS_EXHAUSTED
    assert "waiting no longer for trainers 0, 1 to copy everything else" in "\n".join(run.said)


@pytest.fixture
def pod(tmp_path):
    """A pod of one whose command writes to its scratch, and what it says."""
    environ = GOOD | {
        "JOB_PATH": "/",
        "JOB_COMPLETION_INDEX": "0",
        "CONF_PADDLE_GRADIENT_NUM": "1",
        "PADDLE_NODE_RUN_ID": "run",
        "PADDLE_NODE_ROOT": str(tmp_path),
        "PADDLE_NODE_COMMAND": '["true"]',
        "PADDLE_NODE_CHECKPOINTS": "local",
        "PADDLE_NODE_RESUME": '["{newest:output/step-*}"]',
        "PADDLE_NODE_STAGE_ROOM": "1000000000",
    }
    return environment.parse(environ)


def fill(pod, say=lambda text: None) -> LocalOutput:
    local = LocalOutput(pod, say)
    local.begin(pod, m.Start(1, {}, "", local=True), local.interrupt())
    step = pod.scratch(1) / "output/step-1"
    step.mkdir()
    (step / "part").write_bytes(b"text")
    return local


def test_a_scratch_that_cannot_be_read_ends_as_torn(pod, monkeypatch):
    local = fill(pod)
    local.look(final=False)
    monkeypatch.setattr(durable, "names", Mock(side_effect=PermissionError(13, "no")))
    for _ in range(3):
        assert not local.saves.final
        with pytest.raises(PermissionError):
            local.look(final=True)
    assert local.saves.final and local.saves.parts == {"output/step-1": None}


def test_files_that_vanish_hide_no_checkpoint(pod, monkeypatch):
    local, walk = fill(pod), durable.walk
    gone = pod.home / "gone"
    monkeypatch.setattr(durable, "walk", lambda folder: [gone, *walk(folder)]
                        if folder == pod.home else walk(folder))  # fmt: skip
    assert local.look(final=True, clean=True)
    assert local.saves.parts["output/step-1"].files


def test_what_changes_as_the_output_is_copied_is_copied_anew(pod, monkeypatch):
    local, copied = fill(pod), publication.copy
    log = pod.scratch(1) / "output/log"
    log.write_text("a")

    def write(source, *more):
        if log.read_text() == "a":
            log.write_text("ab")
        return copied(source, *more)

    monkeypatch.setattr(publication, "copy", write)
    local.copy(m.Copy(1, "rest", "", []), local.interrupt())
    assert (local.saves.copied, local.saves.failed) == ("rest", "")
    publication.publish(pod.folder.attempt("run", 1), "rest", "", None, 1)
    publication.install(pod.folder.attempt("run", 1))
    assert (pod.folder.attempt("run", 1) / "output/log").read_text() == "ab"


@pytest.mark.parametrize("run", ["9"], indirect=True)
def test_a_full_scratch_is_copied_before_an_attempt_without_it_removes_it(run):
    say(run, 1, full="the scratch has no room")
    run.fall(0, 0, "the scratch has no room", trainer=False)
    run.clear()
    say(run, 1, final=True, full="the scratch has no room")
    run.clear()
    assert run.attempt == 1
    say(run, 1, final=True, copied="rest", full="the scratch has no room")
    assert run.attempt == 2


@pytest.mark.parametrize("run", ["9"], indirect=True)
def test_an_attempt_that_never_ran_costs_no_scratch(run):
    """A pod is lost while the volume answers, and comes back with its scratch."""
    sent, answer, broadcast = [], run.books.answer, run.rendezvous._broadcast

    def lose(question):
        if isinstance(question, e.Begin) and run.record.last.number == 1:
            run.lose(1)
        return answer(question)

    run.books.answer = lose
    run.rendezvous._broadcast = lambda message: (sent.append(message), broadcast(message))
    parts = checkpoint("output/step-1", "a", 1)
    run.fall(0, 1)
    run.clear()
    for rank in (0, 1):
        run.tell(rank, m.Saves(1, True, parts))
    run.clear()
    run.come(1)
    run.tell(1, m.Saves(1, True, parts))
    run.clear()
    start = next(message for message in sent if isinstance(message, m.Start))
    assert (start.attempt, start.earlier) == (3, 1)
    assert (run.files.scratch.attempt, *run.files.scratch.saves) == (2, "output/step-1")


def test_what_an_attempt_that_never_ran_found_is_copied_to_its_own_folder(pod):
    saves, parts = begin(), checkpoint("output/step-1", "a", 1)
    hear(saves, parts, final=True)
    saves.begin(2, Resumption())
    asked, _ = saves.advance(final=True, rest=True), hear(saves, parts, final=True)
    assert asked[0].attempt == 2
    hear(saves, parts, final=True, copied=asked[0].key)
    assert saves.advance(final=True, rest=True)[0].attempt == 2
    local = fill(pod)
    local.copy(m.Copy(2, "rest", "", []), local.interrupt())
    assert local.saves.copied == "rest"


def test_more_files_than_a_message_can_name_close_no_connection(pod, monkeypatch):
    local = fill(pod)
    for number in (2, 3):
        step = pod.scratch(1) / f"output/step-{number}"
        step.mkdir()
        for part in range(40):
            (step / f"part-{part:0100}").write_bytes(b"text")
    monkeypatch.setattr(m, "LINE_BYTES", 32_000)
    monkeypatch.setattr(checkpoints, "ROOM", 8_000)
    local.look(final=True, clean=True)
    counted = {name for name, part in local.saves.parts.items() if part}
    assert counted == {"output/step-3"} and len(local.saves.parts) == 3
    assert len(m.encode(local.saves)) < m.LINE_BYTES
    start = m.Start(2, {}, "", local=True, earlier=1, kept=["output/step-3"])
    local.begin(pod, start, local.interrupt())
    assert len(list((pod.scratch(2) / "output").iterdir())) == 3, "no pod loses a checkpoint"


PART = {"changed": 1, "files": {"output/step-1/part": [3, "a"]}}
MALFORMED = [
    ["output/step-1"],
    {"output/step-1": []},
    {"output/step-1": {"changed": 1}},
    {"output/step-1": PART | {"changed": -1}},
    {"output/step-1": PART | {"changed": "now"}},
    {"output/step-1": PART | {"files": ["output/step-1/part"]}},
    {"output/step-1": PART | {"files": {"output/step-1/part": 3}}},
    {"output/step-1": PART | {"files": {"output/step-1/part": [3]}}},
    {"output/step-1": PART | {"files": {"output/step-1/part": ["3", "a"]}}},
    {"output/step-1": PART | {"files": {"output/step-1/part": [3, None]}}},
    {"output/step-1": PART | {"files": {"output/step-1/part": [-3, "a"]}}},
]
STRANGE = [
    {"output/step-2": PART},
    {"output/a": {"changed": 1, "files": {"output/a": [3, "a"], "output": [1, ""]}}},
    {"output/step-1": {"changed": 1, "files": {"output/other/part": [3, "a"]}}},
    {"output/step-1": {"changed": 2**63 - 1, "files": {"output/step-1/\0": [3, "a"]}}},
    {f"output/{'9' * 5000}": {"changed": 1, "files": {f"output/{'9' * 5000}/a": [3, ""]}}},
    {"": {"changed": 1, "files": {"": [3, "a"]}}, "\udcff\n": PART, "output": None},
]  # fmt: skip
"""What has the form, and yet is nobody's checkpoint."""


@pytest.mark.parametrize("parts", [*MALFORMED, *STRANGE, {"output/step-1": PART}])
@pytest.mark.parametrize("recipe", ["", '["{rank}.bin"]'])
def test_what_an_agent_lists_ends_no_rendezvous(tmp_path, parts, recipe):
    settings = {"CHECKPOINTS": "local", "RESUME": '["{newest:output/step-*}"]', "ATTEMPTS": "9"}
    run = Run(tmp_path, 1, CHECKPOINT_FILES=recipe, **settings)
    run.come()
    run.tell(0, m.Saves(0, True, {}))
    run.train()
    line = json.dumps({"kind": "Saves", "attempt": 1, "final": False, "parts": parts,
                       "copied": "", "failed": "", "full": ""}).encode()  # fmt: skip
    try:
        listing = m.parse(line, *m.FROM_AGENT)
    except ValueError:  # Its connection is closed.
        assert parts in MALFORMED
        return
    assert parts not in MALFORMED and m.parse(m.encode(listing), *m.FROM_AGENT) == listing
    run.tell(0, listing)
    run.fall(0, 1)
    run.tell(0, replace(listing, final=True))
    run.clear()
    assert (run.attempt, run.outcome) == (2, None)
    resumable = run.files.scratch.saves.keys()
    assert resumable == (
        {"output/step-1"} if parts == {"output/step-1": PART} and not recipe else set()
    )


@pytest.mark.parametrize("run", ["9"], indirect=True)
def test_pod_0_that_restarts_after_a_number_was_spent_costs_no_scratch(run):
    """A pod is lost while the volume answers, so that the number is spent; then pod 0's container
    restarts. Both come back with their scratch.
    """
    sent, answer = [], run.books.answer
    parts = checkpoint("output/step-1", "a", 1)

    def lose(question):
        if isinstance(question, e.Begin):
            run.lose(1)
        return answer(question)

    run.fall(0, 1)
    run.books.answer = lose
    for rank in (0, 1):
        run.tell(rank, m.Saves(1, True, parts))
    run.clear()
    assert run.record.last.number == 2 and run.attempt == 1
    run.serve()
    broadcast = run.rendezvous._broadcast
    run.rendezvous._broadcast = lambda message: (sent.append(message), broadcast(message))
    for rank in (0, 1):
        run.come(rank)
        run.tell(rank, m.Saves(1, True, parts))
    assert (run.files.scratch.attempt, *run.files.scratch.saves) == (2, "output/step-1")
    start = next(message for message in sent if isinstance(message, m.Start))
    assert (start.attempt, start.earlier) == (3, 1)


def test_of_other_files_the_volume_has_nothing_half(pod, monkeypatch):
    """While a checkpoint is copied, a log grows, a file is written anew, another one is about to be
    renamed, and one is removed.
    """
    monkeypatch.setattr(other_files, "SETTLE", 0.5)
    monkeypatch.setattr(other_files, "LARGE", 1000)
    local, output = fill(pod), pod.scratch(1) / "output"
    root = pod.folder.attempt("run", 1)
    old = time.time() - 60

    def write(name: str, text: str) -> None:
        (output / name).parent.mkdir(exist_ok=True)
        (output / name).write_text(text)

    def change(*more):
        monkeypatch.setattr(time, "sleep", sleep)
        with (output / "log").open("a") as log:
            log.write("3\n")
        write("state.json", "{")
        write("draft/shard-2", "x" * 3000)
        (output / "gone").unlink()
        (output / "rotated").replace(output / "rotated.1")
        write("rotated", "new")

    def copy(number: int) -> dict[str, str]:
        local.look(final=True, clean=True)
        local.copy(m.Copy(1, f"key-{number}", "output/step-1", []), local.interrupt())
        assert local.saves.copied == f"key-{number}", local.saves
        parts = [local.saves.parts["output/step-1"].files]
        publication.publish(root, f"key-{number}", "output/step-1", parts, 1)
        publication.install(root)
        return {
            path.relative_to(root / "output").as_posix(): path.read_text()
            for path in (root / "output").rglob("*")
            if path.is_file() and not path.is_symlink() and "step-1" not in path.parts
        }

    files = {"log": "1\n", "state.json": "{}", "gone": "x", "rotated": "old", "best": "b" * 2000}
    for name, text in files.items():
        write(name, text)
        os.utime(output / name, (old, old))
    os.mkfifo(output / "pipe")
    (output / "up").symlink_to("../../../..")
    (output / "real").symlink_to((output / "log").resolve())
    assert copy(1) == files
    assert (root / "output/up").readlink() == Path("../../../..")
    assert (root / "output/real").readlink() == Path("log"), "the same in every attempt and pod"
    best = (root / "output/best").stat().st_ino

    with (output / "log").open("a") as log:
        log.write("2\n")
    write("state.json", '{"a": 1}')
    write("draft/shard-1", "x" * 3000)
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", change)
    assert copy(2) == {
        "log": "1\n2\n3\n", "state.json": "{}", "rotated": "new", "rotated.1": "old",
        "best": files["best"],
    }  # fmt: skip
    assert (root / "output/best").stat().st_ino == best, "what has not changed is not copied again"

    sleep(0.6)
    write("state.json", '{"a": 2}')
    os.utime(output / "state.json", (old, old))
    assert copy(3)["draft/shard-2"] == "x" * 3000
    assert json.loads((root / "output/state.json").read_text()) == {"a": 2}


def test_folders_too_deep_to_be_listed_keep_no_checkpoint_from_the_volume(pod):
    local, root = fill(pod), pod.folder.attempt("run", 1)
    (pod.scratch(1) / "output/log").write_text("text")

    def copy(key: str) -> None:
        local.look(final=True, clean=True)
        local.copy(m.Copy(1, key, "output/step-1", []), local.interrupt())
        parts = [local.saves.parts["output/step-1"].files]
        publication.publish(root, key, "output/step-1", parts, 1)
        publication.install(root)

    copy("key-1")
    folder = os.open(pod.scratch(1) / "output", os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=folder)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    copy("key-2")
    assert local.saves.copied == "key-2"
    assert (root / "output/log").read_text() == "text", "what the volume has stays"


def test_a_file_that_is_emptied_just_before_it_is_copied_is_not_taken(pod, monkeypatch):
    """A program that writes it anew may be paused between both."""
    local, copied = fill(pod), publication.copy
    state = pod.scratch(1) / "output/state.json"
    state.write_text('{"a": 1}')
    old = time.time() - 60
    os.utime(state, (old, old))
    local.look(final=True, clean=True)

    def empty(source, *more):
        if source == state:
            state.write_text("")
        return copied(source, *more)

    monkeypatch.setattr(publication, "copy", empty)
    local.copy(m.Copy(1, "key", "output/step-1", []), local.interrupt())
    assert local.saves.copied == "key"
    root = pod.folder.attempt("run", 1)
    assert json.loads((root / "copies/key/0.json").read_text())["others"] == {}
    assert not (root / "copies/key/0/output/state.json").exists()


def put(name: str, folder: Path) -> None:
    """A file that has not changed for a while."""
    path = folder / "output" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.fsencode(name))
    os.utime(path, (time.time() - 60,) * 2)


def send(local: LocalOutput, pod, key: str, name: str = "output/step-1") -> set[str]:
    """Publishes a checkpoint or, without a name, the rest. Returns what the volume has then."""
    root = pod.folder.attempt("run", 1)
    local.look(final=True, clean=True)
    local.copy(m.Copy(1, key, name, []), local.interrupt())
    assert local.saves.copied == key, local.saves
    parts = [local.saves.parts[name].files] if name else None
    publication.publish(root, key, name, parts, 1)
    publication.install(root)
    files = [path for path in (root / "output").rglob("*") if path.is_file()]
    return {path.relative_to(root / "output").as_posix() for path in files}


def replaced(pod, end: int = 0) -> LocalOutput:
    """The pod that follows on another one; it is told to stop as it brings file number `end`."""
    shutil.rmtree(pod.home)
    local, copied, numbers = LocalOutput(pod, lambda text: None), publication.copy, count(1)

    def stop(*more):
        if next(numbers) == end:
            local.interrupt()
        return copied(*more)

    start = m.Start(1, {"newest": "output/step-1", "content": "key"}, "", local=True, bring=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publication, "copy", stop)
        with pytest.raises(Abandoned) if end else nullcontext():
            local.begin(pod, start, local.interrupt())
    return local


@pytest.mark.parametrize("end", [1, 2, 3])
def test_what_a_pod_has_not_got_yet_is_not_deleted_on_the_volume(pod, end):
    local = fill(pod)
    for name in ("a", "b", "c"):
        put(name, pod.scratch(1))
    files = send(local, pod, "key")
    assert files == send(replaced(pod, end), pod, "rest", "") == {"a", "b", "c", "step-1/part"}


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_pod_got_from_the_volume_is_there_by_its_new_name(pod, restarts):
    local = fill(pod)
    put("logs/a", pod.scratch(1))
    send(local, pod, "key")
    local, output = replaced(pod), pod.scratch(1) / "output"
    if restarts:
        local = LocalOutput(pod, lambda text: None)
        local.recover(pod)
    (output / "logs").rename(output / "logs.old")
    assert send(local, pod, "rest", "") == {"logs.old/a", "step-1/part"}


def test_a_pipe_on_the_volume_keeps_no_attempt_from_its_beginning(pod):
    output = pod.folder.attempt("run", 1) / "output"
    output.mkdir(parents=True)
    os.mkfifo(output / "pipe")
    fill(pod)


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO])
def test_a_file_that_cannot_be_read_keeps_no_checkpoint_from_the_volume(pod, monkeypatch, error):
    said: list[str] = []
    local, opened = fill(pod, said.append), durable.open_file
    for name in ("secret", "log"):
        put(name, pod.scratch(1))

    def refuse(source):
        stream = opened(source)
        if source.name == "secret":
            stream = Mock(wraps=stream, __enter__=Mock(), __exit__=Mock(return_value=None))
            stream.read.side_effect = OSError(error, "no")
        return stream

    monkeypatch.setattr(durable, "open_file", refuse)
    monkeypatch.setattr(retry, "DEADLINE", 0)
    for key in ("key-1", "key-2"):
        assert send(local, pod, key) == {"log", "step-1/part"}
    assert said == [f"output/secret cannot go to the volume: [Errno {error}] no: "
                    f"'{pod.scratch(1)}/output/secret'"]  # fmt: skip
    put("new", pod.scratch(1))
    monkeypatch.setattr(retry, "LASTING_ERRORS", {error, errno.ENOENT})
    assert send(local, pod, "rest", "") == {"log", "new", "step-1/part"}
    assert local.saves.failed == "rest", "a job is not done without it"


@pytest.mark.parametrize("end", ["failed", "abandoned"])
def test_a_copy_that_came_to_nothing_leaves_nothing_on_the_volume(pod, monkeypatch, end):
    local, copied = fill(pod), publication.copy
    copies = pod.folder.attempt("run", 1) / "copies"

    def cut(*more):
        copied(*more)
        if end == "abandoned":
            local.interrupt()
            raise Abandoned
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(publication, "copy", cut)
    local.look(final=True, clean=True)
    local.copy(m.Copy(1, "key-1", "output/step-1", []), local.interrupt())
    assert local.saves.copied == "" and (end == "abandoned" or not (copies / "key-1/0").exists())
    monkeypatch.setattr(publication, "copy", copied)
    assert send(local, pod, "key-2") == {"step-1/part"}
    assert not list(copies.iterdir())


def test_what_is_published_but_not_in_its_place_survives_the_next_copy(pod, monkeypatch):
    local, install = fill(pod), publication.install
    put("log", pod.scratch(1))
    monkeypatch.setattr(publication, "install", lambda root: None)
    assert send(local, pod, "key-1") == set()
    local.copy(m.Copy(1, "key-2", "output/step-1", []), local.interrupt())
    install(pod.folder.attempt("run", 1))
    assert (pod.folder.attempt("run", 1) / "output/step-1/part").exists()
    assert (pod.folder.attempt("run", 1) / "output/log").exists()


def test_a_file_that_comes_to_a_checkpoint_as_others_are_listed_is_not_one_of_them(
    pod, monkeypatch
):
    local, walk = fill(pod), durable.walk
    local.look(final=True, clean=True)

    def add(folder):
        if folder == pod.scratch(1) / "output":
            put("step-1/part-2", pod.scratch(1))
        return walk(folder)

    monkeypatch.setattr(durable, "walk", add)
    local.copy(m.Copy(1, "key", "output/step-1", []), local.interrupt())
    listed = json.loads((pod.folder.attempt("run", 1) / "copies/key/0.json").read_text())
    assert listed["others"] == {}


def test_a_folder_that_is_renamed_as_it_is_listed_stays_on_the_volume(pod, monkeypatch):
    local, entries = fill(pod), durable.entries
    put("logs/a", pod.scratch(1))
    logs = pod.scratch(1) / "output/logs"
    assert send(local, pod, "key-1") == {"logs/a", "step-1/part"}

    def rename(folder):
        if folder == logs and logs.exists():
            logs.rename(logs.with_name("a new name"))
        return entries(folder)

    monkeypatch.setattr(durable, "entries", rename)
    assert send(local, pod, "key-2") == {"a new name/a", "step-1/part"}


def test_a_folder_that_is_renamed_as_it_is_copied_stays_until_the_next_copy(pod, monkeypatch):
    local, copied = fill(pod), publication.copy
    logs = pod.scratch(1) / "output/logs"
    put("logs/a", pod.scratch(1))
    send(local, pod, "key-1")
    put("z", pod.scratch(1))

    def rename(*more):
        if logs.exists():
            logs.rename(logs.with_name("old"))
        return copied(*more)

    monkeypatch.setattr(publication, "copy", rename)
    assert send(local, pod, "key-2") == {"logs/a", "step-1/part", "z"}
    assert send(local, pod, "key-3") == {"old/a", "step-1/part", "z"}


@pytest.mark.parametrize("name", ["n" * 255, "a\nb", os.fsdecode(b"\xff" * 255)])
def test_a_file_of_any_name_comes_to_the_volume_and_to_the_next_pod(pod, name):
    local = fill(pod)
    put(name, pod.scratch(1))
    link = pod.scratch(1) / "output/links" / name
    link.parent.mkdir()
    link.symlink_to(pod.scratch(1) / "output" / name)
    assert send(local, pod, "key") == {name, f"links/{name}", "step-1/part"}
    local.begin(pod, m.Start(2, {}, "", local=True, earlier=1), local.interrupt())
    assert (pod.scratch(2) / "output/links" / name).readlink().parent == local._scratch.own
    replaced(pod)
    assert (pod.scratch(1) / "output" / name).read_bytes() == os.fsencode(name)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("module, fails", [(scratch, "lead"), (filling, "_remove")])
def test_a_beginning_that_fails_costs_no_scratch(pod, monkeypatch, module, fails, restarts):
    local = fill(pod)
    put("a", pod.scratch(1))
    files = send(local, pod, "key")
    put("new", pod.scratch(1))
    with monkeypatch.context() as patch:
        patch.setattr(module, fails, Mock(side_effect=OSError(errno.EIO, "I/O error")))
        start = m.Start(2, {}, "", local=True, earlier=1)
        with pytest.raises(OSError, match="I/O error"):
            local.begin(pod, start, local.interrupt())
    if restarts:
        local = LocalOutput(pod, lambda text: None)
        local.recover(pod)
    written = local.saves.attempt
    assert written == (1 if fails == "lead" else 2)
    if fails == "lead":
        assert send(local, pod, "key-2") == files | {"new"}
    local.begin(pod, m.Start(3, {}, "", local=True, earlier=written), local.interrupt())
    assert {path.name for path in (pod.scratch(3) / "output").iterdir()} == {"a", "new"}


def test_a_pipe_in_place_of_an_empty_file_holds_up_no_copy(pod, monkeypatch):
    local, take = fill(pod), other_files._Copy._take
    put("pipe", pod.scratch(1))
    pipe = pod.scratch(1) / "output/pipe"
    os.truncate(pipe, 0)
    send(local, pod, "key-1")

    def replace_file(self, of):
        if of == "output/pipe":
            pipe.unlink()
            os.mkfifo(pipe)
        return take(self, of)

    monkeypatch.setattr(other_files._Copy, "_take", replace_file)
    assert send(local, pod, "key-2") == {"pipe", "step-1/part"}
    monkeypatch.undo()
    assert send(local, pod, "key-3") == {"step-1/part"}


@pytest.mark.parametrize("listed", ["[]", '{"files": {}, "others": {"output/a": null}}',
                                    '{"files": {}, "others": {"output/a": [[], {}]}}',
                                    '{"files": {}, "others": {"output/a": [1, "a", 1]}}',
                                    '"x"', '{"files": {}, "others": []}'])  # fmt: skip
def test_what_an_agent_has_not_listed_in_form_ends_no_rendezvous(run, listed):
    copies = run.pod.folder.attempt(run.pod.run_id, 1) / "copies/rest"
    copies.mkdir(parents=True)
    for rank in (0, 1):
        (copies / f"{rank}.json").write_text(listed)
    assert "is no list of files" in run.books.answer(e.Publish(1, "rest", "", None, 0, ())).fault


def test_a_copy_that_is_abandoned_late_takes_no_file_from_the_next_one(pod, monkeypatch):
    local, copied = fill(pod), publication.copy
    local.look(final=True, clean=True)
    begun, ended, threads = threading.Event(), threading.Event(), []

    def copy(*more):
        if not threads:  # The first one does not notice for a while that another one follows.
            asked = m.Copy(1, "key-2", "output/step-1", [])
            threads.append(threading.Thread(target=local.copy, args=(asked, local.interrupt())))
            threads[0].start()
            assert begun.wait(9)
        else:
            begun.set()
            assert ended.wait(9)
        return copied(*more)

    monkeypatch.setattr(publication, "copy", copy)
    local.copy(m.Copy(1, "key-1", "output/step-1", []), local.interrupt())
    ended.set()
    threads[0].join()
    assert local.saves.copied == "key-2"


def test_a_copy_that_ends_late_says_nothing_of_the_next_one(pod, monkeypatch):
    local, listed = fill(pod), publication.list_part
    local.look(final=True, clean=True)

    def list_part(root, key, *more):
        listed(root, key, *more)
        if key == "key-1":
            local.copy(m.Copy(1, "key-2", "output/step-1", []), local.interrupt())

    monkeypatch.setattr(publication, "list_part", list_part)
    local.copy(m.Copy(1, "key-1", "output/step-1", []), local.interrupt())
    assert local.saves.copied == "key-2"
