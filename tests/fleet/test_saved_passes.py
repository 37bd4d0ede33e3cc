"""Passes on a volume: whose they are, which are complete, and which stay. Files only; tests/node
has the processes.
"""

import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from node_pods import GOOD
from paddle_node import environment, runtimes
from paddle_node.runtimes import History, Resumption
from paddle_node.volume import passes
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.passes import Identity, Position

OURS = Identity("data", "program")
OTHER = Identity("other data", "program")


@pytest.fixture
def folder(tmp_path) -> JobFolder:
    return JobFolder(tmp_path / "job")


def begun(folder: JobFolder, attempt: int, name: str) -> Path:
    directory = folder.attempt("run", attempt) / name
    (directory / "000").mkdir(parents=True)
    (directory / "000/part-000-00000.gz").write_bytes(b"weights")
    (directory / "path.txt").write_text("program/train.py\n")
    return directory


def sealed(directory: Path, number: int, identity: Identity = OURS, **facts: object) -> Path:
    passes.seal(
        directory, {"pass": number, "attempt": 1, "run": "run", **facts, **asdict(identity)}
    )
    return directory


def saved(folder: JobFolder, number: int, attempt: int = 1, identity: Identity = OURS) -> Path:
    directory = sealed(begun(folder, attempt, f"pass-{number:05d}"), number, identity)
    passes.link_newest(folder, directory.name)
    return directory


def damage(directory: Path) -> None:
    (directory / "path.txt").write_text("program/train.pz\n")


def begin(
    folder: JobFolder, identity: Identity = OURS, **variables: str
) -> tuple[Resumption, list[str]]:
    """Returns what an attempt begins with, and its messages."""
    environ = {
        "JOB_NAME": folder.root.name,
        "JOB_PATH": str(folder.root.parent),
        "PADDLE_NODE_RUN_ID": "run",
    }
    own = {f"PADDLE_NODE_{name}": value for name, value in ({"SEED": "7"} | variables).items()}
    said: list[str] = []
    node = environment.parse(GOOD | environ | own)
    return runtimes.find_runtime(node.way).progress(node, said.append).begin(
        identity, History()
    ), said


def test_a_persons_folders_links_and_files_at_the_names_of_passes_are_neither_followed_nor_removed(
    folder,
):
    folder.pass_dir(0).mkdir(parents=True)
    (folder.pass_dir(0) / "weights").touch()
    sentence = (
        f"pass-00000 in {folder.output}: folders without a record of this version, they are left "
        "alone"
    )
    assert begin(folder) == (Resumption(), [sentence])
    directory = saved(folder, 0)
    assert (folder.pass_dir(0) / "weights").is_file() and not folder.pass_dir(0).is_symlink()
    mine = folder.root / "mine/pass-00004"
    mine.mkdir(parents=True)
    (mine / "precious").touch()
    (directory.parent / "pass-00003").symlink_to(mine)
    (directory.parent.parent / "run-7").symlink_to(mine.parent)
    (directory.parent / "pass-00005").touch()
    (folder.output / "elsewhere").symlink_to("/not mounted here")
    assert begin(folder)[0].resumed["pass"] == "0"
    assert [entry.name for entry in mine.iterdir()] == ["precious"] and (
        folder.output / "elsewhere"
    ).is_symlink()


def test_a_damaged_pass_is_passed_over_for_the_one_before_with_a_sentence(folder):
    for number in range(4):
        saved(folder, number)
    (folder.pass_dir(3) / "done").write_text("{")
    damage(folder.pass_dir(2))
    found, said = begin(folder)
    assert found.resumed == {"pass": "1", "folder": "attempts/run-1/pass-00001"}
    assert found.passed_over == ("attempts/run-1/pass-00002",)
    assert "pass-00003/done is not a record of this version, or was changed" in said[0]
    assert "pass-00002 cannot be loaded: path.txt was changed" in said[1]


def test_keep_passes_neither_counts_nor_deletes_a_damaged_or_foreign_pass(folder):
    """Beside a damaged pass of a higher number, each newly saved pass used to be deleted."""
    damage(saved(folder, 9))
    saved(folder, 8, identity=OTHER)
    for number in range(3):
        saved(folder, number, attempt=2)
        passes.keep_newest(folder, OURS, 1, set())
    kept = {one.name for one in passes.read_newest_first(folder)}
    assert kept == {
        "attempts/run-1/pass-00008",
        "attempts/run-1/pass-00009",
        "attempts/run-2/pass-00002",
    }
    assert not folder.pass_dir(1).is_symlink() and folder.pass_dir(2).exists()


CHECKPOINTS = {
    "as it was saved": (lambda folder, half: None, {}, True),
    "another seed": (lambda folder, half: None, {"SEED": "8"}, False),
    "other data": (lambda folder, half: None, {"identity": OTHER}, False),
    "the pass before is gone": (
        lambda folder, half: shutil.rmtree(half.with_name("pass-00001")),
        {},
        False,
    ),
    "that pass was trained anew": (lambda folder, half: saved(folder, 1, attempt=2), {}, False),
    "it is damaged": (lambda folder, half: damage(half), {}, False),
    "it is half saved": (lambda folder, half: (half / "done").unlink(), {}, False),
}


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_a_checkpoint_is_used_by_a_run_that_reads_the_same_records_in_the_same_order(folder, case):
    happens, more, used = CHECKPOINTS[case]
    saved(folder, 0)
    saved(folder, 1)
    half = begun(folder, 1, "interrupted")
    trainers = [asdict(Position(10, 9, 3.5, 0.5)), asdict(Position(8, 8, 2.0, 0.5))]
    sealed(
        half,
        2,
        behind="attempts/run-1/pass-00001",
        order=passes.order_digest("data", 7, 3),
        trainers=trainers,
    )
    happens(folder, half)
    assert begin(folder, **more)[0].resumed.get("interrupted") == (
        "attempts/run-1/interrupted" if used else None
    )
    assert (half / "path.txt").exists() == (case != "it is half saved")


BAD_DISK = """
if index == '1' and seen == 1:
    from paddle_node.volume import passes
    works = passes.describe_files
    def fails(*share):
        passes.describe_files = works
        raise OSError(5, 'Input/output error')
    passes.describe_files = fails
time.sleep(0.005)
"""


def test_a_checkpoint_of_which_one_trainer_cannot_read_its_share_is_left_out_and_the_next_is_whole(
    training_job,
):
    job = training_job(pods=2, PASSES="1", CHECKPOINT="0.5")
    job.at_each_record(BAD_DISK)
    job.split(job.make_sample("--lines", "1000"))
    job.run()
    said = job.folder.train_log(0).read_text(errors="replace")
    assert re.search(
        r"no checkpoint in pass 0 at step \d+, training continues: .*trainer 1: .*Input/output "
        r"error",
        said,
    ), said
    assert len(re.findall(r"checkpoint in pass 0 at step \d+: \d", said)) > 0
    passes.verify(job.folder.pass_dir(0))
