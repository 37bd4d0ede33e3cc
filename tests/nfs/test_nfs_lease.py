"""Runs whose pods see the volume through different clients hold the lease and compete for it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from nfs_machine import GRACE, Volume, at_once, cut_off, server_down, until
from paddle_node.contract import ExitCode
from paddle_node.failure import Failure
from paddle_node.volume import lease
from paddle_node.volume.lease import Lease

EXPIRY = 4.5
"""Seconds, chosen for half a second between two heartbeats."""


class Beating(AbstractContextManager["Beating"]):
    """A pod that holds the lease and sends heartbeats as the agent does."""

    def __init__(self, held: Lease) -> None:
        self.held = held
        self.beats = 0
        self.lost: Failure | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat)
        self._thread.start()

    def _beat(self) -> None:
        while not self._ended.wait(self.held.interval):
            try:
                self.held.beat()
                self.beats += 1
            except OSError:
                continue  # The next heartbeat tries again.
            except Failure as failure:
                self.lost = failure
                return

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def acquire(folder: Path, run: str, expiry: float = EXPIRY) -> Lease:
    return lease.acquire(folder / "state", run, f"boot of {run}", expiry)


def test_nfs_of_runs_that_race_for_the_lease_through_three_clients_one_wins(volume: Volume) -> None:
    for round_ in range(8):
        places = [place / str(round_) for place in (volume.a, volume.b, volume.c)]
        for place in places:
            assert not (place / "state").exists()  # Each client caches the absence.
        ends = at_once(
            *(
                lambda place=place: Beating(acquire(place, f"run-on-{place.parts[3]}"))
                for place in places
            )
        )
        refused = [end.exception() for end in ends if end.exception()]
        with ExitStack() as stack:
            winners = [stack.enter_context(end.result()) for end in ends if not end.exception()]
            assert len(refused) == 2
            assert all(
                isinstance(end, Failure) and end.code == ExitCode.FOLDER_IN_USE for end in refused
            )
            assert [pod.lost for pod in winners] == [None]


def test_nfs_a_living_holder_is_seen_though_the_other_client_has_just_looked(
    volume: Volume,
) -> None:
    with Beating(acquire(volume.a, "first")) as first:
        for path in (volume.b / "state").iterdir():
            path.read_text()
        start = time.monotonic()
        with pytest.raises(Failure) as refused:
            acquire(volume.b, "second")
        assert refused.value.code == ExitCode.FOLDER_IN_USE
        assert time.monotonic() - start < EXPIRY
        assert first.lost is None


def test_nfs_a_server_that_restarts_takes_the_lease_from_nobody(volume: Volume) -> None:
    waits = threading.Event()
    with Beating(acquire(volume.a, "first")) as first, ThreadPoolExecutor() as pool:
        second: Future[Lease] = pool.submit(
            lease.acquire,
            volume.b / "state",
            "second",
            "boot",
            EXPIRY,
            lambda _: waits.set(),
            time.sleep,
        )
        waits.wait()
        # One client does not come back, so the server waits its whole grace period for it.
        with cut_off("c"):
            with server_down():
                time.sleep(EXPIRY)
                stopped = first.beats
            refused = second.exception(timeout=60)
            assert isinstance(refused, Failure)
            assert refused.code == ExitCode.FOLDER_IN_USE
            until(lambda: first.beats > stopped)
            assert first.lost is None


def test_nfs_a_client_cut_off_for_longer_than_the_expiry_is_replaced_and_fences_itself(
    volume: Volume,
) -> None:
    with Beating(acquire(volume.a, "first")) as first, ExitStack() as stack:
        until(lambda: first.beats > 1)
        start = time.monotonic()
        with cut_off("a"):
            second = stack.enter_context(Beating(acquire(volume.b, "second")))
            assert time.monotonic() - start >= EXPIRY
            assert first.held.left < 0  # By its own clock it may not continue.
            until(
                lambda: time.monotonic() - start > GRACE + 5
            )  # The server has dropped its state, too.
        until(lambda: first.lost is not None)
        assert isinstance(first.lost, lease.TakenOver)
        assert not first.lost.same_run
        beats = second.beats
        until(lambda: second.beats > beats + 1)
        assert second.lost is None
        assert (holder := lease.holder(volume.c / "state"))
        assert holder[0] == "second"
