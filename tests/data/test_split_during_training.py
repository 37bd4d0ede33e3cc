"""A data job beside a run that trains: the run keeps its own split and program, which go when nobody reads them any more."""

from dataclasses import replace
from pathlib import Path

import pytest
from job_folder import Job
from paddle_node import contract
from paddle_node.data import data_manifest
from paddle_node.rendezvous import lease
from paddle_node.rendezvous.attempts import STOPPED, Loss, Outcome, Record
from paddle_node.rendezvous.lease import Lease
from paddle_node.runtimes import Resumption
from paddle_node.staging import program_copy
from paddle_node.staging.shard_copy import stage
from paddle_node.training.passes import Identity


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    """Two sources."""
    places = tmp_path / "old", tmp_path / "new"
    for place in places:
        place.write_text(f"{place.name}\n" * 9)
    return places


def begin(job: Job, attempt: bool = True) -> tuple[Lease, Record]:
    """What the agent of trainer 0 writes when it takes the folder, and when all trainers start."""
    held = lease.acquire(job.folder.run_state, "run-1", "boot", 9.0)
    record = Record(job.folder, "run-1", held.check)
    if attempt:
        record.begin(Resumption(), Identity())
    return held, record


def test_the_split_and_the_program_of_a_living_run_stay_until_it_has_ended(
    job: Job, texts: tuple[Path, Path], tmp_path: Path
) -> None:
    old, new = texts
    program = tmp_path / "programs" / "mine"
    program.mkdir(parents=True)
    (program / "train.py").write_text("first")
    first = job.split(old, PROGRAM_FROM=program)
    its_data, its_program = data_manifest.digest(job.folder.data_manifest), program_copy.digest(job.folder.program("mine"))
    _, record = begin(job)

    (program / "train.py").write_text("second")
    job.split(new, PROGRAM_FROM=program)
    assert job.shard(0).startswith(b"new"), "a run that begins now reads the new data"
    found = data_manifest.find(job.folder, its_data)
    assert found == job.folder.splits / first.split / "manifest.json"
    stage(replace(job.folder, manifest=found), 1, 3)
    copies = [path for path in job.folder.programs.glob("*/") if program_copy.digest(path) == its_program]
    assert [(copy / "train.py").read_text() for copy in copies] == ["first"]
    assert (job.folder.program("mine") / "train.py").read_text() == "second"

    record.end(Loss("the job is done", STOPPED))
    record.finish(Outcome(0, ""))
    job.split(new, PROGRAM_FROM=program)
    assert data_manifest.find(job.folder, its_data) is None
    assert len(list(job.folder.programs.glob("*/"))) == 1


def test_a_run_that_waits_for_its_data_or_was_killed_keeps_nothing(
    job: Job, texts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = texts
    first = job.split(old)
    begin(job, attempt=False)
    second = job.split(new)
    assert not (job.folder.splits / first.split).exists()
    begin(job)
    monkeypatch.setattr(contract, "LEASE", -1.0)  # Any silence is too long.
    job.split(old)
    assert not (job.folder.splits / second.split).exists()
