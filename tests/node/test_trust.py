"""What an earlier run, another pod or an old process left behind spoils nothing, and is no success of this run."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from node_pods import Pods, runs
from paddle_node.data import data_manifest
from paddle_node.staging import program_copy
from paddle_node.training import passes

pytestmark = pytest.mark.slow


def program(pods: Pods, text: str) -> None:
    (pods.folder.program("quick_start") / "text").mkdir(exist_ok=True)
    (pods.folder.program("quick_start") / "text/words.py").write_text(text)


def copied_program(pods: Pods, text: str) -> str:
    """As the data job leaves it: a folder of its own, named by its digest, and the link that leads to the newest."""
    draft = pods.folder.programs / "draft"
    draft.mkdir(parents=True)
    (draft / "train.py").write_text(text)
    digest = program_copy.digest(draft)
    folder = draft.rename(draft.with_name(f"{digest[:32]}.copy"))
    link = pods.folder.program("quick_start")
    if link.is_dir() and not link.is_symlink():
        link.rmdir()
    link.unlink(missing_ok=True)
    link.symlink_to(f"programs/{folder.name}")
    return digest


def split(pods: Pods, word: str) -> str:
    """The real data job on the pods' volume, in place of the shards made by hand; the digest of what it split."""
    for index in range(3):
        if not pods.folder.shard(index).is_symlink():
            shutil.rmtree(pods.folder.shard(index))
    source = pods.folder.root.parent / f"{word}.txt"
    source.write_text("".join(f"{word} {number}\n" for number in range(30)))
    data_job = Path(__file__).parents[2] / "trainer_image/split_data.py"
    settings = {"OUT_DIR": str(pods.folder.root), "SPLIT_COUNT": "3", "DATA_SOURCE": str(source)}
    subprocess.run([sys.executable, str(data_job)], env=os.environ | settings, check=True, timeout=120)
    return data_manifest.digest(pods.folder.data_manifest)


def test_a_pod_0_frozen_in_a_save_replaced_and_thawed_deletes_nothing_of_its_successor(job):
    pods = job(stand_in={"passes": 4, "steps": 4, "holds": [1, 1, "save"], "keep": 2})
    pods.start_and_hold()
    old, trainer = pods.pods[0], pods.child(0, "trainer")
    agent_and_server = [old.pid, pods.child(0, "server")]
    for pid in (trainer, *agent_and_server):
        os.kill(pid, signal.SIGSTOP)
    pods._replaced[0] += 1  # Another pod, another address.
    pods.start(0)
    assert pods.codes() == [0, 0, 0], pods.logs()
    kept = [one.name for one in passes.find(pods.folder)]
    assert kept == ["attempts/run-1-2/pass-00003", "attempts/run-1-2/pass-00002"]
    # The trainer first, so that it comes to the end of its save before anybody ends it.
    pods.release()
    os.kill(trainer, signal.SIGCONT)
    pods.wait_until(lambda: not runs(trainer))
    for pid in agent_and_server:
        os.kill(pid, signal.SIGCONT)
    assert old.wait(30) != 0
    assert "pass-00001 was given up by a later attempt while it was saved" in (old.life / "log").read_text()
    assert [one.name for one in passes.find(pods.folder)] == kept
    for one in passes.find(pods.folder):
        passes.verify(one.folder)
    pods.end_undisturbed()


def test_a_holder_that_cannot_renew_its_lease_ends_with_its_workers_before_another_run_may_train(job):
    pods = job(count=2, stand_in={"passes": 1000}, LEASE="9")
    pods.start()
    pods.wait_for_pass(0)
    pids = [pods.child(index, role) for index in range(2) for role in ("trainer", "server")]
    pods.folder.run_state.rename(pods.folder.root / "away")
    assert pods.pods[0].wait(90) == 75, pods.logs()
    assert "the lease on" in pods.log(0) and "could not be renewed for 6 s" in pods.log(0)
    pods.wait_until(lambda: not any(runs(pid) for pid in pids))


def test_a_program_that_does_nothing_is_no_success_in_an_old_folder(job):
    pods = job(count=2)
    program(pods, "one")
    pods.start()
    assert pods.codes() == [0, 0], pods.logs()
    again = job(count=2, run="run-2", stand_in={"absent": True, "server_code": 0}, ATTEMPTS="1")
    again.start()
    assert again.codes() == [70, 70], again.logs()
    assert "trainers 0, 1 ended with 0 and had never joined the others: they have trained nothing" in again.log(1)


def test_a_changed_module_beside_train_py_is_another_program_and_is_trained_from_the_beginning(job):
    pods = job(count=2)
    program(pods, "one")
    pods.start()
    assert pods.codes() == [0, 0], pods.logs()
    program(pods, "another vocabulary")
    again = job(count=2, run="run-2")
    again.start()
    assert again.codes() == [0, 0], again.logs()
    assert (
        "passes found: 2 of other data or another program, not used; set resume_from: any to continue from pass 1" in again.log(0)
    )
    assert [attempt["resume"].get("pass") for attempt in again.attempts()] == [None, None]
    # The other program's passes stay, and people's links lead to the new ones.
    assert len(passes.find(pods.folder)) == 4
    assert again.folder.pass_dir(1).readlink().as_posix() == "attempts/run-2-2/pass-00001"
    asked = job(count=2, run="run-3", stand_in={"passes": 3}, RESUME_FROM="any")
    program(pods, "a third one")
    asked.start()
    assert asked.codes() == [0, 0], asked.logs()
    assert asked.attempts()[-1]["resume"]["folder"] == "attempts/run-2-2/pass-00001"


def test_data_and_program_exchanged_under_waiting_pods_are_read_again_by_those_that_have_the_old_ones(job):
    pods = job()
    split(pods, "old")
    program(pods, "old")
    pods.start(0, 1)
    for index in (0, 1):
        pods.wait_for(index, "has read data")
    new = split(pods, "new")
    program(pods, "new")
    pods.start(2)
    assert pods.codes() == [0, 0, 0], pods.logs()
    assert "no attempt begins, they prepare again" in pods.log(0)
    read = [(attempt["data"], attempt["program"]) for attempt in pods.attempts()]
    assert read == [(new, program_copy.digest(pods.folder.program("quick_start")))]


def test_a_pod_that_comes_later_reads_the_data_and_the_program_that_its_run_began_with(job):
    pods = job(stand_in={"passes": 3, "steps": 10, "holds": [1, 1, 4]})
    data, digest = split(pods, "old"), copied_program(pods, "the run's")
    pods.start_and_hold()
    assert split(pods, "new") != data
    copied_program(pods, "the next run's")
    pods.kill(1)
    pods.start(1)
    pods.end_undisturbed()
    assert {(attempt["data"], attempt["program"]) for attempt in pods.attempts()} == {(data, digest)}
    assert f"has read data {data[:12]} and program {digest[:12]}" in pods.log(1)


def test_a_pass_that_cannot_be_loaded_is_passed_over_for_the_one_before(job):
    pods = job(count=2, stand_in={"passes": 3, "poisons": [1, 1], "fails": [[1, 1, 2, 1]]})
    pods.start()
    pods.end_undisturbed()
    bad = "attempts/run-1-1/pass-00001"
    assert f"{bad} is passed over: two attempts that began with it ended before their first step" in pods.log(0)
    assert [attempt["resume"].get("pass") for attempt in pods.attempts()] == [None, "1", "1", "0"]
    assert pods.attempts()[-1]["passed_over"] == [bad]
    # The bad one stays where it is; the next run does not try it again.
    assert (pods.folder.output / bad / "done").exists()
    again = job(count=2, run="run-2", stand_in={"passes": 4})
    again.start()
    assert again.codes() == [0, 0], again.logs()
    assert again.attempts()[-1]["resume"]["folder"] == "attempts/run-1-4/pass-00002"
