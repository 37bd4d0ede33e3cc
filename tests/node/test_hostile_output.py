"""What a program, a person or a death at the wrong moment may do to a command's output folder: no
result is lost, and no agent falls.
"""

import errno
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from paddle_node.failure import BadSetting
from paddle_node.runtimes import Resumption, attempt_output
from paddle_node.volume import durable
from paddle_node.volume.passes import Identity
from test_file_progress import MINE, Job

RESUME = {"PADDLE_NODE_RESUME": '["{newest:output/epoch-*}"]'}


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.fixture
def plain_user():
    """A job of a user whom modes bind, as in a cluster; root may do anything."""
    place = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    place.chmod(0o777)
    if root:
        os.seteuid(1234)
    yield Job(place / "own")
    if root:
        os.seteuid(0)
    shutil.rmtree(place)


@pytest.mark.parametrize("gone", [True, False])
def test_a_checkpoint_that_its_program_made_read_only_comes_along_and_is_published(
    plain_user, gone
):
    job, progress = plain_user, plain_user.progress(**RESUME)
    job.begin(progress)
    for name in ("epoch-1/weights", "epoch-1/deep/weights"):
        job.save(name).chmod(0o444)
    for name in ("epoch-1/deep", "epoch-1", ""):
        (job.output / name).chmod(0o555)
    assert job.begin(progress, gone=gone).resumed["newest"] == "output/epoch-1"
    assert (job.output / "epoch-1/deep").stat().st_mode & 0o777 == 0o555
    progress.publish()
    saved = job.folder.output / "epoch-1"
    assert (saved / "deep/weights").read_text() == "x"
    assert saved.stat().st_mode & 0o777 == 0o555
    # Nothing is left of earlier attempts.
    assert [path.name for path in job.folder.attempts.iterdir()] == []
    # The next run may change it, too.
    assert job.begin(job.progress("next", **RESUME)).resumed["newest"] == "output/epoch-1"


def test_folders_that_a_program_made_in_each_other_without_end_end_nothing(job):
    progress = job.progress(**RESUME)
    job.begin(progress)
    job.save("epoch-1")
    descend(job.output, 1000)
    descend(job.output, 20, LONG)  # Deeper than a path can say.
    assert job.begin(progress).resumed["newest"] == "output/epoch-1"
    progress.publish()
    assert (job.folder.output / "epoch-1").read_text() == "x"
    ascend(job.folder.output, "a", LONG)


def test_what_is_too_deep_to_be_copied_is_one_sentence(job, monkeypatch):
    progress = job.progress()
    job.begin(progress)
    job.save("/".join("a" * 40))
    monkeypatch.setattr(attempt_output, "MOST_FOLDERS", 30)
    with pytest.raises(BadSetting, match=r"/a/a lies too deep to be copied: remove the folders"):
        job.begin(progress, gone=False)


LONG = "n" * 250


def descend(folder: Path, count: int, name: str = "a") -> None:
    here = os.open(".", os.O_RDONLY)
    os.chdir(folder)
    for _ in range(count):
        Path(name).mkdir()
        os.chdir(name)
    os.fchdir(here)
    os.close(here)


def ascend(folder: Path, *names: str) -> None:
    """Removes what `descend` made, which is too deep for pytest."""
    subprocess.run(["rm", "-rf", *names], cwd=folder, check=True)


def test_what_a_program_gives_the_agents_own_names_hides_none_of_theirs(job):
    progress = job.progress(**RESUME)
    job.begin(progress)
    for name in ("set-aside/notes", "run/x", "node_9/x", "attempts/x", "precious"):
        job.save(name)
    progress.has_progressed()
    links = [path.name for path in job.folder.output.iterdir() if path.is_symlink()]
    assert links == ["precious"]
    # Its pods were killed; another program takes over, and then it comes back.
    other = Identity("data", "another program")
    job.begin(job.progress("other", **RESUME), other, gone=False)
    (kept,) = job.folder.set_aside.glob("*/output/precious")
    assert kept.read_text() == "x"
    job.begin(job.progress("again", **RESUME), MINE)
    assert (job.output / "precious").read_text() == "x"
    assert (job.output / "set-aside/notes").read_text() == "x"


def test_what_a_person_has_put_there_meanwhile_moves_aside_and_the_results_come(job):
    progress = job.progress(**RESUME)
    job.begin(progress)
    for name in ("model/weights", "log", "zlast"):
        job.save(name, "results")
    for name in ("model/mine", "log/mine"):
        (job.folder.output / name).parent.mkdir(parents=True)
        (job.folder.output / name).write_text("a person's")
    progress.publish()
    assert (job.folder.output / "model/weights").read_text() == "results"
    assert (job.folder.output / "log").read_text() == "results"
    assert (job.folder.output / "zlast").read_text() == "results"
    assert (job.folder.set_aside / "run-1/model/mine").read_text() == "a person's"
    assert (job.folder.set_aside / "run-1/log/mine").read_text() == "a person's"
    assert "output/log, which somebody has put there meanwhile, is in" in job.said[0]


def test_a_run_that_has_ended_publishes_nothing_of_the_next_one(job):
    ended = job.progress("ended", **RESUME)
    job.begin(ended)
    job.begin(job.progress("next", **RESUME))
    job.save("epoch-1")
    ended.publish()
    assert job.output.joinpath("epoch-1").exists()


def test_what_a_pod_that_still_runs_replaces_as_it_is_copied_is_not_lost(job, monkeypatch):
    """It keeps one checkpoint: as the copies begin, it saves the next and removes that one."""
    progress = job.progress(**RESUME)
    job.begin(progress)
    job.save("epoch-4", "4")
    copy, old = shutil.copy2, job.output

    def late(source, target):
        if (old / "epoch-4").exists():
            (old / "epoch-5").write_text("5")
            (old / "epoch-4").unlink()
        return copy(source, target)

    monkeypatch.setattr(shutil, "copy2", late)
    assert job.begin(progress, gone=False).resumed["newest"] == "output/epoch-5"
    assert (job.output / "epoch-5").read_text() == "5"


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_program_that_replaces_its_folder_on_the_volume_is_refused_and_loses_nothing(job, kind):
    progress = job.progress(**RESUME)
    job.begin(progress)
    job.output.rmdir()
    if kind == "link":
        (job.place / "scratch").mkdir()
        job.output.symlink_to(job.place / "scratch")
    else:
        job.output.write_text("results")
    with pytest.raises(BadSetting, match=r"the program has replaced \{output\}, its folder on"):
        progress.find_missing(MINE, Resumption(), False)
    # The attempt may have failed before anybody looked.
    job.begin(progress)
    assert (job.output / "output").is_symlink() is (kind == "link")
    progress.publish()
    assert (job.folder.output / "output").is_symlink() is (kind == "link")


def test_walk_goes_deeper_than_python_would_and_keeps_its_order(tmp_path):
    for name in ("b/d/e", "b/c", "a"):
        (tmp_path / name).mkdir(parents=True)
    names = [path.relative_to(tmp_path).as_posix() for path in durable.walk(tmp_path)]
    assert names == ["a", "b", "b/c", "b/d", "b/d/e"]
    descend(tmp_path / "a", 1000)
    assert len(list(durable.walk(tmp_path))) == 1005
    descend(tmp_path / "b/c", 20, LONG)
    with pytest.raises(OSError) as refused:
        list(durable.walk(tmp_path))
    assert refused.value.errno == errno.ENAMETOOLONG
    ascend(tmp_path, "a", "b")
