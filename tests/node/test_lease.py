"""The lease: one holder however many try, refused while it lives, free when it is dead, judged by one's own clock."""

import contextlib
import errno
import json
import os
import time
from pathlib import Path

import pytest
from paddle_node.failure import Failure
from paddle_node.rendezvous import lease

EXPIRY = 9.0


class Clock:
    """Sleeping costs nothing; `each` is called once for every second slept."""

    def __init__(self, each=lambda: None):
        self.slept, self._each = 0.0, each

    def __call__(self, seconds: float) -> None:
        self.slept += seconds
        self._each()


def acquire(folder: Path, run: str, boot: str, clock=None) -> lease.Lease:
    return lease.acquire(folder / "run", run, boot, EXPIRY, sleep=clock or Clock())


def test_a_living_run_is_not_disturbed(tmp_path):
    first = acquire(tmp_path, "one", "a")
    clock = Clock(each=first.beat)
    with pytest.raises(Failure) as refused:
        acquire(tmp_path, "two", "b", clock)
    assert refused.value.code == 73
    assert " is in use by run one: give this job another name, or wait until that run has ended" in refused.value.sentence
    assert clock.slept <= 1.0
    first.beat()


def test_a_dead_run_is_waited_for_until_it_expires(tmp_path):
    first = acquire(tmp_path, "one", "a")
    clock = Clock()
    second = acquire(tmp_path, "two", "b", clock)
    assert EXPIRY <= clock.slept < EXPIRY + 1.1
    second.beat()
    with pytest.raises(lease.TakenOver) as lost:
        first.beat()  # As one that was suspended all the time.
    assert not lost.value.same_run
    assert [file.name for file in (tmp_path / "run").glob("lease-*")] == ["lease-00002.json"]


def test_a_new_pod_of_the_same_run_takes_over_and_the_old_one_notices(tmp_path):
    old = acquire(tmp_path, "one", "a")
    clock = Clock()
    new = acquire(tmp_path, "one", "b", clock)
    assert clock.slept == 0
    with pytest.raises(lease.TakenOver) as lost:
        old.beat()
    assert lost.value.same_run
    new.beat()


def test_a_holder_that_cannot_renew_it_has_no_time_left_before_another_may_take_it(tmp_path, monkeypatch):
    holder = acquire(tmp_path, "one", "a")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    folder = tmp_path / "run"
    now += 3.0
    holder.beat()
    assert holder.left == pytest.approx(6.0)
    folder.rename(tmp_path / "away")  # The volume is gone for looks and for writes.
    now += 6.0
    with contextlib.suppress(OSError):
        holder.beat()
    assert holder.left <= 0
    with pytest.raises(Failure, match="could not be renewed for 6 s, and another run may take it over soon") as ended:
        holder.check()
    assert ended.value.code == 75
    # It comes back before anybody took it: the next heartbeat is as good as ever.
    (tmp_path / "away").rename(folder)
    holder.beat()
    holder.check()


def test_an_unreadable_lease_is_somebodys(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "lease-00001.json").touch()
    clock = Clock(each=lambda: (folder / "lease-00001.json").write_text(json.dumps({"run": "quick", "boot": "q", "beats": 0})))
    with pytest.raises(Failure, match="in use by run quick"):
        acquire(tmp_path, "two", "b", clock)


def test_a_fault_that_may_pass_is_no_wrong_setting(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OSError, match="Stale file handle"):
        acquire(tmp_path, "one", "a")
