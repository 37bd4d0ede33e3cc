"""The lease where its holder is dead, or cannot be read. tests/node/test_pod_waits.py and test_trust.py have living ones."""

import errno
import json
import os

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
