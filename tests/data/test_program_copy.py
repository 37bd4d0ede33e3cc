"""The training program reaches the volume whole."""

import shutil
from pathlib import Path

import pytest
from job_folder import Job
from paddle_node.contract import JobFolder
from paddle_node.staging import program_copy
from paddle_node.staging.program_copy import copy_program


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "programs" / "mine"
    (folder / "deep" / "__pycache__").mkdir(parents=True)
    (folder / "train.py").write_text("one")
    (folder / "deep" / "more.py").write_text("two")
    (folder / "deep" / "__pycache__" / "more.pyc").write_text("left behind")
    return folder


@pytest.fixture
def folder(job: Job) -> JobFolder:
    return job.folder


def files(folder: Path) -> dict[str, str]:
    folder = folder.resolve()
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_it_is_copied_once_and_a_copy_is_never_written_again(program: Path, folder: JobFolder) -> None:
    assert copy_program(program, folder, "mine")
    assert files(folder.program("mine")) == {"train.py": "one", "deep/more.py": "two"}
    assert not copy_program(program, folder, "mine")
    first = folder.program("mine").resolve()
    assert first.parent == folder.programs.resolve()
    assert program_copy.digest(program) == program_copy.digest(folder.program("mine")) == program_copy.digest(first)

    (program / "train.py").write_text("newer")
    (program / "deep" / "more.py").unlink()
    assert copy_program(program, folder, "mine")
    assert files(folder.program("mine")) == {"train.py": "newer"}
    assert files(first) == {"train.py": "one", "deep/more.py": "two"}, "a run may read it still"
    program_copy.sweep(folder, "mine")
    assert not first.exists()
    assert list(folder.programs.iterdir()) == [folder.program("mine").resolve()], "nothing else stays"


def test_the_data_job_repairs_a_damaged_copy(job: Job, program: Path, source: Path) -> None:
    copy = job.folder.program("mine")
    for _ in range(2):
        job.split(source, PROGRAM_FROM=program)
        assert files(copy) == {"train.py": "one", "deep/more.py": "two"}
        assert [path.name for path in job.folder.programs.glob("*/")] == [copy.resolve().name], "the damaged one is removed"
        (copy / "train.py").write_text("damaged")
        (copy / "deep" / "more.py").unlink()


def test_a_persons_program_stays(job: Job, program: Path, source: Path) -> None:
    own = job.folder.program("mine")
    shutil.copytree(program, own)
    job.split(source, PROGRAM_FROM=program)  # Equal already.
    (own / "train.py").write_text("my changes")
    sentence = "differs from the image's program mine, and no data job has put it there"
    job.refused(sentence, 2, source, PROGRAM_FROM=program)
    assert (own / "train.py").read_text() == "my changes" and not own.is_symlink()


def test_a_config_map_is_links_to_a_folder_that_hides(tmp_path: Path, folder: JobFolder) -> None:
    """Kubernetes mounts each key of a ConfigMap as a link into ..data, itself a link to a dated folder."""
    mount = tmp_path / "own"
    dated = mount / "..2026_11_21"
    dated.mkdir(parents=True)
    (dated / "train.py").write_text("from a ConfigMap")
    (mount / "..data").symlink_to("..2026_11_21")
    (mount / "train.py").symlink_to("..data/train.py")
    assert copy_program(mount, folder, "own")
    copy = folder.program("own")
    assert [path.name for path in copy.iterdir()] == ["train.py"]
    assert not (copy / "train.py").is_symlink()
    assert not copy_program(mount, folder, "own")
    assert program_copy.digest(mount) == program_copy.digest(copy)


def test_a_link_to_a_folder_is_followed_but_not_in_circles(program: Path, folder: JobFolder) -> None:
    library = program.parent / "library"
    library.mkdir()
    (library / "words.py").write_text("three")
    (program / "library").symlink_to("../library")
    assert copy_program(program, folder, "mine")
    assert files(folder.program("mine"))["library/words.py"] == "three"
    assert not copy_program(program, folder, "mine")
    (program / "up").symlink_to("..")
    with pytest.raises(OSError, match="a link to a folder in which it lies"):
        copy_program(program, folder, "mine")


def test_no_such_program_names_those_there_are(job: Job, program: Path, source: Path) -> None:
    sentence = r"PROGRAM_FROM names .*/yours, which this image does not hold \(it holds: mine\)"
    job.refused(sentence, 2, source, PROGRAM_FROM=program.with_name("yours"))
