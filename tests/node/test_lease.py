"""The lease: one holder however many try, refused while it lives, free when it is dead, judged by one's own clock."""

import contextlib
import errno
import json
import os
import time

import pytest
from paddle_node.failure import Failure
from paddle_node.rendezvous import lease


@pytest.fixture
def acquire(tmp_path):
    """Takes the lease on tmp_path/run; where it has to wait, a second costs nothing but `each` call."""

    def take(run: str, incarnation: str, each=lambda: None) -> lease.Lease:
        def sleep(seconds: float) -> None:
            take.slept += seconds
            each()

        take.slept = 0.0
        return lease.acquire(tmp_path / "run", run, incarnation, 9.0, sleep=sleep)

    return take


def test_a_living_run_is_not_disturbed(acquire):
    first = acquire("one", "a")
    with pytest.raises(Failure, match="is in use by run one: give this job another name, or wait until that run has") as refused:
        acquire("two", "b", first.beat)
    assert refused.value.code == 73 and acquire.slept <= 1.0
    first.beat()


@pytest.mark.parametrize(("run", "least"), [("two", 9.0), ("one", 0.0)], ids=["another run", "a new pod of the same run"])
def test_a_dead_holder_is_waited_for_until_it_expires_but_not_by_its_own_run(acquire, tmp_path, run, least):
    first = acquire("one", "a")
    second = acquire(run, "b")
    assert least <= acquire.slept < least + 1.1
    second.beat()
    with pytest.raises(lease.TakenOver) as lost:
        first.beat()  # As one that was suspended all the time.
    assert lost.value.same_run is (run == "one")
    assert [file.name for file in (tmp_path / "run").glob("lease-*")] == ["lease-00002.json"]


def test_a_holder_that_cannot_renew_it_has_no_time_left_before_another_may_take_it(acquire, tmp_path, monkeypatch):
    holder = acquire("one", "a")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    holder.beat()
    assert holder.left == pytest.approx(6.0)
    (tmp_path / "run").rename(tmp_path / "away")  # The volume is gone for looks and for writes.
    now += 6.0
    with contextlib.suppress(OSError):
        holder.beat()
    with pytest.raises(Failure, match="could not be renewed for 6 s, and another run may take it over soon") as ended:
        holder.check()
    assert ended.value.code == 75 and holder.left <= 0
    # It comes back before anybody took it: the next heartbeat is as good as ever.
    (tmp_path / "away").rename(tmp_path / "run")
    holder.beat()
    holder.check()


def test_an_unreadable_lease_is_somebodys(acquire, tmp_path):
    (tmp_path / "run").mkdir()
    lies = tmp_path / "run/lease-00001.json"
    lies.touch()
    with pytest.raises(Failure, match="in use by run quick"):
        acquire("two", "b", lambda: lies.write_text(json.dumps({"run": "quick", "boot": "q", "beats": 0})))


def test_a_fault_that_may_pass_is_no_wrong_setting(acquire, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OSError, match="Stale file handle"):
        acquire("one", "a")
