"""The training program reaches the volume whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_folder import Job
from paddle_node.failure import Failure
from paddle_node.program_copy import copy_program


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "programs" / "mine"
    (folder / "deep" / "__pycache__").mkdir(parents=True)
    (folder / "train.py").write_text("one")
    (folder / "deep" / "more.py").write_text("two")
    (folder / "deep" / "__pycache__" / "more.pyc").write_text("left behind")
    return folder


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_it_is_copied_once(program: Path, tmp_path: Path) -> None:
    target = tmp_path / "volume" / "job" / "mine"
    assert copy_program(program, target)
    assert files(target) == {"train.py": "one", "deep/more.py": "two"}
    assert not copy_program(program, target)


def test_a_new_version_replaces_the_old_one_whole(program: Path, tmp_path: Path) -> None:
    target = tmp_path / "volume" / "job" / "mine"
    copy_program(program, target)
    (program / "train.py").write_text("newer")
    (program / "deep" / "more.py").unlink()
    assert copy_program(program, target)
    assert files(target) == {"train.py": "newer"}
    assert [path.name for path in target.parent.iterdir()] == ["mine"], "nothing temporary stays"


def test_a_config_map_is_links_to_a_folder_that_hides(tmp_path: Path) -> None:
    """Kubernetes mounts each key of a ConfigMap as a link into ..data, itself a link to a dated folder."""
    mount = tmp_path / "own"
    dated = mount / "..2026_11_21"
    dated.mkdir(parents=True)
    (dated / "train.py").write_text("from a ConfigMap")
    (mount / "..data").symlink_to("..2026_11_21")
    (mount / "train.py").symlink_to("..data/train.py")
    target = tmp_path / "volume" / "own"
    assert copy_program(mount, target)
    assert [path.name for path in target.iterdir()] == ["train.py"]
    assert not (target / "train.py").is_symlink()
    assert not copy_program(mount, target)


def test_no_such_program_names_those_there_are(job: Job, program: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("1\n2\n3\n")
    with pytest.raises(
        Failure, match=r"PROGRAM_FROM names .*/yours, which this image does not hold \(it holds: mine\)"
    ) as caught:
        job.split(tmp_path / "in.txt", PROGRAM_FROM=program.parent / "yours")
    assert caught.value.code == 2
