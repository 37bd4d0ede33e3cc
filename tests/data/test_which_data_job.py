"""Trainers train on what their own data job split, never on what an earlier one left in the folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_folder import Job
from paddle_node.data import data_manifest
from paddle_node.failure import Failure
from paddle_node.staging import preparation


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"line {number}\n" for number in range(9)))
    return path


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "POLL", 0.001)


def said(job: Job, data_job: str) -> str:
    """What keeps trainer 1 from being ready; empty when nothing does."""
    node = job.trainer(PADDLE_NODE_PEER_DEADLINE=0.003, PADDLE_NODE_DATA_JOB=data_job)
    try:
        preparation.prepare(node, lambda line: None)
    except Failure as failure:
        assert failure.code == 65
        return failure.sentence
    return ""


def test_the_shards_of_an_earlier_data_job_are_not_taken(job: Job, source: Path, impatient: None) -> None:
    job.split(source, PADDLE_NODE_DATA_JOB="0ld")
    assert said(job, "0ld") == ""
    assert said(job, "new") == (
        f"{job.folder.data_manifest} of data job new did not come within 0 s, the one there is of data job 0ld: "
        "let this job's own data job run to its end; where it has ended already, delete it and apply it again"
    )


def test_a_data_job_that_finds_its_split_done_says_that_it_is_its_own(job: Job, source: Path, impatient: None) -> None:
    first = job.split(source)
    before = job.data()
    assert "is of data job unknown" in said(job, "new")
    again = job.split(source, PADDLE_NODE_DATA_JOB="new")
    assert (again.created, again.shards, job.data()) == (first.created, first.shards, before)
    assert data_manifest.read(job.folder.data_manifest) == again
    assert said(job, "new") == ""


@pytest.mark.parametrize("damage", ["{", None])
def test_nothing_whole_is_waited_for(job: Job, source: Path, impatient: None, damage: str | None) -> None:
    job.split(source, PADDLE_NODE_DATA_JOB="new")
    if damage is None:
        # Shards without a manifest, as if put there by hand.
        job.folder.data_manifest.unlink()
    else:
        job.folder.data_manifest.write_text(damage)
    assert "no whole one is there" in said(job, "new")
