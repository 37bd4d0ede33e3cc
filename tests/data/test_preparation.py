"""What a pod waits for before it is ready: its own data job's manifest, and a volume that fails for a moment."""

import errno
import os
from pathlib import Path

import pytest
from job_folder import Job
from paddle_node import retry
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


@pytest.mark.parametrize("name", ["data-manifest.json", "part-00000-00000"])
@pytest.mark.parametrize(
    ("code", "times", "said"),
    [(errno.EIO, 3, 3), (errno.EIO, 1_000_000, None), (errno.ENOSPC, 1, 0)],
    ids=["passes", "stays", "full"],
)
def test_a_pod_outlasts_a_volume_that_fails_for_a_moment(
    job: Job, source: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int, times: int, said: int | None
) -> None:
    """The volume does not open the file the first `times` times."""
    monkeypatch.setattr(retry, "PAUSES", (0.001, 0.002))
    job.split(source)
    node = job.trainer()
    opened, left = Path.open, times

    def open_or_fail(path: Path, *more: object, **named: object) -> object:
        nonlocal left
        if path.name == name and (left := left - 1) >= 0:
            raise OSError(code, os.strerror(code), str(path))
        return opened(path, *more, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", open_or_fail)
    monkeypatch.setattr(Path, "read_text", lambda path: open_or_fail(path).read())
    lines: list[str] = []
    if said is None:
        monkeypatch.setattr(retry, "DEADLINE", 0.1)
    if said:
        preparation.prepare(node, lines.append)
        assert len(lines) == said and lines[0].endswith(f"{name}: Input/output error; trying again in 0.001 s")
        return
    with pytest.raises(OSError, match=os.strerror(code)):
        preparation.prepare(node, lines.append)
    assert bool(lines) == (said is None)
