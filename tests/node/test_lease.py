"""Who holds a job's folder, and who may still write to it. tests/nfs asks the same of NFS."""

import json
import threading
from pathlib import Path

import pytest
from paddle_node.failure import Failure
from paddle_node.rendezvous.attempt_end import AttemptEnd
from paddle_node.rendezvous.attempts import AttemptRecord
from paddle_node.runtimes import Resumption
from paddle_node.volume import lease
from paddle_node.volume.attempts import POD, STOPPED, Outcome
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.passes import Identity

MINE = Identity("data", "program")


@pytest.mark.parametrize(("theirs", "mine", "waited"), [
    (45.0, 4.0, 45), (4.0, 45.0, 45), (3600.0, 4.0, 3600),
    # What nobody may have set, and leases of the last release, which name no length.
    (1e9, 4.0, 4), (-1.0, 4.0, 4), ("45", 4.0, 4), (None, 4.0, 4),
])  # fmt: skip
def test_a_newcomer_waits_as_long_as_the_holders_lease_lasts(tmp_path, theirs, mine, waited):
    held = lease.acquire(tmp_path, "theirs", "boot", 45.0)
    record = json.loads(held.path.read_text())
    assert record["expiry"] == 45.0
    held.path.write_text(json.dumps(record | {"expiry": theirs}))
    pauses = []
    lease.acquire(tmp_path, "mine", "boot-2", mine, sleep=pauses.append)
    assert sum(pauses) == pytest.approx(waited, abs=1)


def test_a_holder_with_a_longer_lease_shows_itself_in_time(tmp_path):
    held = lease.acquire(tmp_path, "theirs", "boot", 45.0)
    beats = iter([None] * 4)

    def sleep(seconds: float) -> None:
        if next(beats, held) is held:  # Five seconds have passed.
            held.beat()

    with pytest.raises(Failure, match="is in use by run theirs"):
        lease.acquire(tmp_path, "mine", "boot-2", 4.0, sleep=sleep)
    assert held.left > 0


def test_pod_0_that_was_frozen_before_its_rename_takes_no_outcome_back(tmp_path, monkeypatch):
    folder = JobFolder(tmp_path)
    folder.run_state.mkdir(parents=True)
    frozen, thaw, replace = threading.Event(), threading.Event(), Path.replace

    def freeze(path: Path, target: Path) -> Path:
        if threading.current_thread().name == "old" and target.name == "attempts.json":
            frozen.set()
            thaw.wait(60)
        return replace(path, target)

    held = lease.acquire(folder.run_state, "run", "old", 90.0)
    old = AttemptRecord(folder, "run", held.check)
    old.begin(Resumption(), MINE)
    monkeypatch.setattr(Path, "replace", freeze)
    raised = []

    def end() -> None:
        try:
            old.end(AttemptEnd("the pod was told to stop", STOPPED))
        except OSError as error:
            raised.append(error)

    thread = threading.Thread(target=end, name="old")
    thread.start()
    assert frozen.wait(60)
    successor = lease.acquire(folder.run_state, "run", "new", 90.0)
    new = AttemptRecord(folder, "run", successor.check)
    new.end(AttemptEnd("the pod of trainer 0 was lost", POD))
    new.begin(Resumption(), MINE)
    new.finish(Outcome(0, "done"))
    thaw.set()
    thread.join()
    assert raised and AttemptRecord(folder, "run").outcome == Outcome(0, "done")
    assert [attempt.number for attempt in AttemptRecord(folder, "run")._of_run] == [1, 2]
    with pytest.raises(lease.TakenOver):
        old.finish(Outcome(1, "late"))
    assert AttemptRecord(folder, "run").outcome == Outcome(0, "done")
    assert not list(folder.run_state.glob(".attempts*"))
