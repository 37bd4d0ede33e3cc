"""Records created exclusively, and the passes that they seal, through different clients;
test_nfs_lease.py has leases.
"""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from nfs_machine import SERVER, Volume, at_once, cut_off, slow_answers, until
from paddle_node.failure import Failure
from paddle_node.volume import durable, passes
from paddle_node.volume.job_folder import JobFolder

FACTS = {"pass": 3, "attempt": 1, "run": "run", "data": "data", "program": "program"}


def saved(root: Path) -> Path:
    """Makes a pass as a trainer leaves it before it is sealed. Returns its folder."""
    folder = JobFolder(root).output / "attempts" / "run-1" / "pass-00003"
    (folder / "000").mkdir(parents=True)
    for number in range(5):
        (folder / "000" / f"part-{number}").write_bytes(os.urandom(100_000))
    return folder


def test_nfs_a_record_whose_creation_is_asked_for_twice_is_its_creators(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The fault hits exactly one line: the server does what `os.link` asks for, and restarts before
    # its answer arrives.
    link = os.link

    def unanswered_link(draft: Path, path: Path) -> None:
        with ThreadPoolExecutor() as pool:
            with slow_answers("a", 3):
                asked = pool.submit(link, draft, path)
                until((volume.served / "record").exists)
                with cut_off("a"):
                    subprocess.run([SERVER, "stop"], check=True)
            subprocess.run([SERVER, "start"], check=True)
            fault = asked.exception()
        assert isinstance(fault, FileExistsError)
        raise fault

    monkeypatch.setattr(os, "link", unanswered_link)
    assert durable.create(volume.a / "record", "mine")
    assert (volume.b / "record").read_text() == "mine"


def test_nfs_a_pass_is_sealed_or_given_up_by_one_of_two_clients_and_seen_whole_or_not_at_all(
    volume: Volume,
) -> None:
    for round_ in range(10):
        folder = saved(volume.a / str(round_))
        there = JobFolder(volume.b / str(round_))
        assert not list(passes.read_newest_first(there))  # The client caches this.
        assert not (volume.b / folder.relative_to(volume.a) / passes.DONE).exists()
        for file in (folder / "000").iterdir():
            assert (volume.b / file.relative_to(volume.a)).stat().st_size == 100_000  # And this.
            with file.open("ab") as stream:
                stream.write(b"more")
        sealing, giving_up = at_once(
            partial(passes.seal, folder, FACTS), partial(passes.discard_incomplete, there)
        )
        assert isinstance(sealing.exception(), (Failure, FileNotFoundError, type(None)))
        sealed = sealing.exception() is None
        assert sealed != bool(giving_up.result())
        for place in (there, JobFolder(volume.c / str(round_))):
            saved_passes = list(passes.read_newest_first(place))
            assert [saved_pass.number for saved_pass in saved_passes] == [3] * sealed
            for saved_pass in saved_passes:
                passes.verify(saved_pass.folder)
