"""What an earlier run, another pod or an old process left behind does no harm and counts as no
success of this run.
"""

import os
import shutil
import signal

import pytest
from node_pods import StandIns, runs
from paddle_node.staging import program_copy
from paddle_node.volume import data_manifest, passes

pytestmark = pytest.mark.slow


def split(pods: StandIns, word: str) -> tuple[str, str]:
    """Replaces what was made by hand with the real data job's result. Returns the digests of its
    data and program.
    """
    for made in (pods.folder.program("quick_start"), *map(pods.folder.shard, range(3))):
        if not made.is_symlink():
            shutil.rmtree(made)
    source = pods.place / word / "quick_start/train.py"
    source.parent.mkdir(parents=True)
    source.write_text("".join(f"{word} {number}\n" for number in range(30)))
    pods.program = source.parent
    pods.split(source, hold_out=0)
    return data_manifest.digest(pods.folder.data_manifest), program_copy.digest(
        pods.folder.program("quick_start")
    )


def test_a_pod_0_frozen_in_a_save_replaced_and_thawed_deletes_nothing_of_its_successor(job):
    pods = job(stand_in={"passes": 4, "steps": 4, "holds": [1, 1, "save"], "keep": 2})
    pods.start_and_hold()
    old, trainer, server = pods.pods[0], pods.child(0, "trainer"), pods.child(0, "pserver")
    for pid in (trainer, old.pid, server):
        os.kill(pid, signal.SIGSTOP)
    pods.replaced[0] += 1  # A new pod at a new address.
    pods.start(0)
    pods.end_with(0, 0, 0)
    kept = ["attempts/run-1-2/pass-00003", "attempts/run-1-2/pass-00002"]
    assert [one.name for one in passes.read_newest_first(pods.folder)] == kept
    # The trainer goes first, so that it finishes its save before anybody ends it.
    pods.release()
    os.kill(trainer, signal.SIGCONT)
    pods.wait_until(lambda: not runs(trainer))
    for pid in (server, old.pid):  # The agent, once it is back, ends its pserver.
        os.kill(pid, signal.SIGCONT)
    assert old.wait(30) != 0
    assert (
        "pass-00001 was given up by a later attempt while it was saved"
        in (old.life / "log").read_text()
    )
    assert [one.name for one in passes.read_newest_first(pods.folder)] == kept
    for one in passes.read_newest_first(pods.folder):
        passes.verify(one.folder)
    pods.end_undisturbed()


@pytest.mark.parametrize(("deleted", "why"), [
    (True, "output/run was deleted, with this run's lease and the record of its attempts in it"),
    (False, "could not be renewed for 6 s"),
], ids=["deleted", "refused"])  # fmt: skip
def test_a_holder_that_cannot_renew_its_lease_ends_with_its_workers_before_another_run_may_train(
    job, deleted, why
):
    pods = job(count=2, stand_in={"passes": 1000}, LEASE="9")
    pods.start()
    pods.wait_until(pods.folder.done(0).exists)
    pids = [pods.child(index, role) for index in range(2) for role in ("trainer", "pserver")]
    pods.folder.run_state.rename(pods.folder.root / "away")
    if not deleted:
        pods.folder.run_state.touch()
    assert pods.pods[0].wait(90) == 75, pods.logs()
    assert why in pods.log(0)
    pods.wait_until(lambda: not any(runs(pid) for pid in pids))


def test_a_changed_module_beside_train_py_is_another_program_and_doing_nothing_is_no_success(
    job,
):
    for run, text in (("run-1", "one"), ("run-2", "another vocabulary")):
        pods = job(count=2, run=run)
        (pods.folder.program("quick_start") / "text").mkdir(exist_ok=True)
        (pods.folder.program("quick_start") / "text/words.py").write_text(text)
        pods.start()
        pods.end_undisturbed()
    unused = (
        "passes found: 2 of other data or another program, not used; set resume_from: any to "
        "continue from pass 1"
    )
    assert unused in pods.log(0)
    # The other program's passes stay, and the links for people lead to the new ones.
    assert len(list(passes.read_newest_first(pods.folder))) == 4
    assert pods.folder.pass_dir(1).readlink().as_posix() == "attempts/run-2-2/pass-00001"
    # All passes of the same program exist already.
    again = job(count=2, run="run-3", stand_in={"absent": True}, ATTEMPTS="1")
    again.start()
    again.end_with(70, 70)
    assert (
        "trainers 0, 1 ended with 0 and had never joined the others: they have trained nothing"
        in again.log(1)
    )


def test_data_and_program_exchanged_under_waiting_pods_are_read_again_and_later_ones_stay(
    job,
):
    pods = job(stand_in={"passes": 3, "steps": 10, "holds": [1, 1, 4]})
    split(pods, "old")
    pods.start(0, 1)
    for index in (0, 1):
        pods.wait_for(index, "has read data")
    new = split(pods, "new")
    pods.start(2)
    for index in range(3):
        pods.wait_for(index, "waits in step")
    assert "no attempt begins, they prepare again" in pods.log(0)
    assert not set(new) & set(split(pods, "newest"))
    pods.kill(1)
    pods.start(1)
    pods.end_undisturbed()
    assert [(attempt["data"], attempt["program"]) for attempt in pods.attempts()] == [new, new]
    assert f"has read data {new[0][:12]} and program {new[1][:12]}" in pods.log(1)
