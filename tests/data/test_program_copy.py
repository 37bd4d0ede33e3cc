"""The training program reaches the volume whole. The program and the split stay while a run trains
with them.
"""

import os
import shutil
from pathlib import Path

import pytest
from job_folder import Job, lines_file
from paddle_node.rendezvous.attempt_end import AttemptEnd
from paddle_node.rendezvous.attempts import AttemptRecord
from paddle_node.runtimes import Resumption
from paddle_node.staging.program_copy import copy_program
from paddle_node.volume import lease
from paddle_node.volume.attempts import STOPPED, Outcome
from paddle_node.volume.passes import Identity

FILES = {"train.py": "one", "deep/more.py": "two"}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "programs" / "mine"
    (folder / "deep" / "__pycache__").mkdir(parents=True)
    for name, content in (FILES | {"deep/__pycache__/more.pyc": "left behind"}).items():
        (folder / name).write_text(content)
    return folder


def files(folder: Path) -> dict[str, str]:
    folder = folder.resolve()
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_data_job_repairs_a_damaged_copy(job: Job, program: Path, source: Path) -> None:
    copy = job.folder.program("mine")
    for _ in range(2):
        job.split(source, PROGRAM_FROM=program)
        assert files(copy) == FILES
        (copy / "train.py").write_text("damaged")
        (copy / "deep" / "more.py").unlink()


def test_a_persons_program_stays(job: Job, program: Path, source: Path) -> None:
    mine = job.folder.program("mine")
    shutil.copytree(program, mine)
    job.split(source, PROGRAM_FROM=program)  # The two are still equal.
    (mine / "train.py").write_text("my changes")
    sentence = "differs from the image's program mine, and no data job has put it there"
    job.refused(sentence, 2, source, PROGRAM_FROM=program)
    assert (mine / "train.py").read_text() == "my changes" and not mine.is_symlink()


def test_links_are_followed_as_a_config_map_has_them_and_to_folders_but_not_in_circles(
    job: Job, program: Path
) -> None:
    """Kubernetes mounts each key of a ConfigMap as a link into ..data, which is itself a link to a
    dated folder.
    """
    for folder, name in (
        (program / "..2026_11_21", "own.py"),
        (program.parent / "library", "words.py"),
    ):
        folder.mkdir()
        (folder / name).write_text("three")
    (program / "..data").symlink_to("..2026_11_21")
    (program / "own.py").symlink_to("..data/own.py")
    (program / "library").symlink_to("../library")
    assert copy_program(program, job.folder, "mine")
    copy = job.folder.program("mine").resolve()
    assert files(copy) == FILES | {"own.py": "three", "library/words.py": "three"}
    assert not any(path.is_symlink() for path in copy.rglob("*"))
    assert not copy_program(program, job.folder, "mine"), "it is there already"
    (program / "up").symlink_to("..")
    with pytest.raises(OSError, match="a link to a folder in which it lies"):
        copy_program(program, job.folder, "mine")


def test_no_such_program_names_those_there_are(job: Job, program: Path, source: Path) -> None:
    sentence = r"PROGRAM_FROM names .*/yours, which this image does not hold \(it holds: mine\)"
    job.refused(sentence, 2, source, PROGRAM_FROM=program.with_name("yours"))


@pytest.mark.parametrize("run", ["trains", "waits for its data", "was killed", "has ended"])
def test_a_run_keeps_its_program_and_while_it_trains_its_split(
    job: Job, program: Path, source: Path, run: str
) -> None:
    """The test writes what the run's trainer 0 writes to the volume; tests/node shows that later
    pods read the old versions.
    """
    first = job.split(source, PROGRAM_FROM=program)
    its_program, its_shard = job.folder.program("mine").resolve(), job.folder.shard(0).resolve()
    record = AttemptRecord(
        job.folder, "run-1", lease.acquire(job.folder.run_state, "run-1", "boot", 9.0).check
    )
    if run != "waits for its data":
        record.begin(Resumption(), Identity())
    if run == "was killed":
        os.utime(job.folder.run_state / "lease-00001.json", (0, 0))  # Long ago.
    if run == "has ended":
        record.end(AttemptEnd("the job is done", STOPPED))
        record.finish(Outcome(0, ""))
    (program / "train.py").write_text("second")
    assert job.split(lines_file(source, 12), PROGRAM_FROM=program).split != first.split
    assert (job.folder.program("mine") / "train.py").read_text() == "second"
    assert len(job.records()) == 12
    assert files(its_program) == FILES
    assert its_shard.exists() == (run == "trains")
