"""Trainers train on what their own data job split, never on what an earlier one left in the folder."""

from pathlib import Path

import pytest
from job_folder import Job
from paddle_node.failure import Failure
from paddle_node.staging import preparation


def said(job: Job, data_job: str) -> str:
    """What keeps trainer 1 from being ready; empty when nothing does."""
    node = job.trainer(PADDLE_NODE_PEER_DEADLINE=0.003, PADDLE_NODE_DATA_JOB=data_job)
    try:
        preparation.prepare(node, lambda line: None)
    except Failure as failure:
        assert failure.code == 65
        return failure.sentence
    return ""


def test_trainers_wait_for_the_manifest_of_their_own_data_job(job: Job, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "POLL", 0.001)
    first = job.split(source, PADDLE_NODE_DATA_JOB="0ld")
    before = job.data()
    assert said(job, "0ld") == ""
    assert said(job, "new") == (
        f"{job.folder.data_manifest} of data job new did not come within 0 s, the one there is of data job 0ld: "
        "let this job's own data job run to its end; where it has ended already, delete it and apply it again"
    )
    # A data job that finds its split done says that it is its own.
    again = job.split(source, PADDLE_NODE_DATA_JOB="new")
    assert (again.created, again.shards, job.data()) == (first.created, first.shards, before)
    assert said(job, "new") == ""
    job.folder.data_manifest.write_text("{")
    assert "no whole one is there" in said(job, "new")
    # Shards without a manifest, as if put there by hand.
    job.folder.data_manifest.unlink()
    assert "no whole one is there" in said(job, "new")
