"""A data job that would exchange the shards that a training reads: half of its passes would see others, and none would tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_folder import Job
from paddle_node import contract, data_manifest, lease
from paddle_node.attempts import Outcome, Record
from paddle_node.failure import Failure
from paddle_node.lease import Lease
from paddle_node.splitting import commit, sign_of_life


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return text(tmp_path / "old.txt", "old")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return text(tmp_path / "new.txt", "new")


def text(path: Path, word: str) -> Path:
    path.write_text("".join(f"{word} {number}\n" for number in range(9)))
    return path


def begin(job: Job, attempt: bool = True) -> tuple[Lease, Record]:
    """What the supervisor of trainer 0 writes when it takes the folder, and when all trainers start."""
    held = lease.acquire(job.folder.run_state, "run-1", "boot", 9.0)
    record = Record(job.folder, "run-1", held.check)
    if attempt:
        record.begin(None)
    return held, record


def beat_at_each_look(monkeypatch: pytest.MonkeyPatch, held: Lease) -> None:
    monkeypatch.setattr(sign_of_life.time, "sleep", lambda seconds: held.beat())


def test_the_shards_of_a_living_run_stay(
    job: Job, old: Path, new: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job.split(old)
    manifest, before = job.folder.data_manifest.read_bytes(), [job.shard(index) for index in range(3)]
    held, record = begin(job)
    beat_at_each_look(monkeypatch, held)
    with pytest.raises(Failure, match=f"run run-1 trains in {job.folder.root}, whose shards") as caught:
        job.split(new)
    assert caught.value.code == 73
    assert f"run run-1 was training in {job.folder.root}: waiting 90 s for a sign of life" in capsys.readouterr().out
    assert (job.folder.data_manifest.read_bytes(), [job.shard(index) for index in range(3)]) == (manifest, before)
    job.split(old)  # This very split is complete: nothing would be exchanged.

    record.end("the job is done", 0, 9)
    record.finish(Outcome(0, ""))
    job.split(new)
    assert job.shard(0).startswith(b"new")


def test_a_run_that_begins_while_the_split_is_at_work(job: Job, old: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job.split(old)
    stage = commit.stage
    with monkeypatch.context() as patched:

        def late(work, manifest):
            stage(work, manifest)
            held, _ = begin(job)
            beat_at_each_look(patched, held)

        patched.setattr(commit, "stage", late)
        with pytest.raises(Failure, match="run run-1 trains in"):
            job.split(new)
    assert job.shard(0).startswith(b"old")
    lease.acquire(job.folder.run_state, "run-1", "boot", 9.0).release()
    job.split(new)
    assert job.shard(0).startswith(b"new")


def test_its_program_stays_too(job: Job, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt would run other code on the passes of the first."""
    program = tmp_path / "programs" / "mine"
    program.mkdir(parents=True)
    (program / "train.py").write_text("first")
    job.split(old, PROGRAM_FROM=program)
    held, _ = begin(job)
    beat_at_each_look(monkeypatch, held)
    job.split(old, PROGRAM_FROM=program)
    (program / "train.py").write_text("second")
    with pytest.raises(Failure, match="shards and program are not exchanged under it"):
        job.split(old, PROGRAM_FROM=program)
    assert (job.folder.program("mine") / "train.py").read_text() == "first"
    held.release()
    job.split(old, PROGRAM_FROM=program)
    assert (job.folder.program("mine") / "train.py").read_text() == "second"


def test_a_run_that_waits_for_its_data_is_not_in_the_way(job: Job, old: Path, new: Path) -> None:
    job.split(old)
    begin(job, attempt=False)
    job.split(new)
    assert job.shard(0).startswith(b"new")


def test_a_run_that_was_killed_is_outwaited(job: Job, old: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job.split(old)
    begin(job)
    monkeypatch.setattr(contract, "LEASE", 0.05)
    monkeypatch.setattr(sign_of_life, "LOOK", 0.01)
    job.split(new)
    assert job.shard(0).startswith(b"new")


def test_shards_of_an_older_source_are_no_longer_said_to_be_this_data_jobs(
    job: Job, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same data job once more, over a source that has changed: trainers that begin meanwhile wait for the new shards."""
    job.split(old, PADDLE_NODE_DATA_JOB="hash")
    text(old, "new")
    claimed: list[str] = []
    stage = commit.stage

    def look(work, manifest):
        found = data_manifest.read(job.folder.data_manifest)
        claimed.append(found.job if found else "no manifest")
        stage(work, manifest)

    monkeypatch.setattr(commit, "stage", look)
    manifest = job.split(old, PADDLE_NODE_DATA_JOB="hash")
    assert (claimed, manifest.job) == ([""], "hash")
    assert job.shard(0).startswith(b"new")
