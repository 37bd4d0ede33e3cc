"""Passes on a volume: whose they are, which are whole, and which stay. Files alone; tests/node has the processes."""

import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from paddle_node import environment, runtimes
from paddle_node.contract import JobFolder
from paddle_node.failure import Failure
from paddle_node.runtimes import History, Resumption
from paddle_node.training import passes
from paddle_node.training.passes import Identity, Position

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


def saved(folder: JobFolder, number: int, attempt: int = 1, identity: Identity = OURS) -> Path:
    directory = begun(folder, attempt, f"pass-{number:05d}")
    passes.seal(directory, {"pass": number, "attempt": attempt, "run": "run", **asdict(identity)})
    passes.lead(folder, directory.name)
    return directory


def names(folder: JobFolder) -> list[str]:
    return [one.name.removeprefix("attempts/run-") for one in passes.find(folder)][::-1]


class Chooser:
    """The choice of an attempt; what it says is kept."""

    def __init__(self, folder: JobFolder, **variables: str) -> None:
        environ = {
            "JOB_NAME": folder.root.name,
            "JOB_PATH": str(folder.root.parent),
            "TRAIN_CONFIG_DIR": "quick_start",
            "CONF_PADDLE_GRADIENT_NUM": "2",
            "JOB_COMPLETION_INDEX": "0",
            "POD_IP": "127.0.0.1",
            "PADDLE_NODE_RUN_ID": "run",
            "PADDLE_NODE_SERVICE": "job",
            "PADDLE_NODE_SEED": "7",
            **{f"PADDLE_NODE_{name}": value for name, value in variables.items()},
        }
        self.said: list[str] = []
        node = environment.parse(environ)
        self._passes = runtimes.by_name(node.runtime).progress(node, self.said.append)

    def begin(self, unloadable=(), identity: Identity = OURS) -> Resumption:
        return self._passes.begin(identity, History(unloadable=[{"folder": one} for one in unloadable]))


def test_a_persons_links_and_files_at_the_names_of_passes_are_neither_followed_nor_removed(folder):
    directory = saved(folder, 0)
    mine = folder.root / "mine/pass-00004"
    mine.mkdir(parents=True)
    (mine / "precious").touch()
    (directory.parent / "pass-00003").symlink_to(mine)
    (directory.parent.parent / "run-7").symlink_to(mine.parent)
    (directory.parent / "pass-00005").touch()
    (folder.output / "elsewhere").symlink_to("/not mounted here")
    assert Chooser(folder).begin().resume["pass"] == "0"
    assert [entry.name for entry in mine.iterdir()] == ["precious"] and (folder.output / "elsewhere").is_symlink()


def test_a_damaged_pass_is_passed_over_for_the_one_before_with_a_sentence(folder):
    for number in range(4):
        saved(folder, number)
    (folder.pass_dir(3) / "done").write_text("{")
    (folder.pass_dir(2) / "path.txt").write_text("program/train.pz\n")
    chooser = Chooser(folder)
    found = chooser.begin()
    assert found.resume == {"pass": "1", "folder": "attempts/run-1/pass-00001"}
    assert found.passed_over == ("attempts/run-1/pass-00002",)
    assert any("pass-00003/done is no record of this version, or was changed" in said for said in chooser.said)
    assert any("pass-00002 cannot be loaded: path.txt was changed" in said for said in chooser.said)


def test_a_pass_that_attempts_could_not_load_is_passed_over_for_the_one_before(folder):
    for number in range(2):
        saved(folder, number)
    chooser = Chooser(folder)
    assert chooser.begin({"attempts/run-1/pass-00001"}).resume["pass"] == "0"
    assert Chooser(folder).begin({"attempts/run-1/pass-00001", "attempts/run-1/pass-00000"}).resume["pass"] == "1"
    assert (
        "attempts/run-1/pass-00001 is passed over: two attempts that began with it ended before their first step" in chooser.said
    )


def test_passes_of_other_data_or_another_program_are_not_gone_on_from_unless_asked_for(folder):
    for number in range(3):
        saved(folder, number, identity=OTHER)
    chooser = Chooser(folder)
    assert chooser.begin() == Resumption()
    assert chooser.said == [
        "passes found: 3 of other data or another program, not used; set resume_from: any to continue from pass 2"
    ]
    asked = Chooser(folder, RESUME_FROM="any", PASSES="4")
    assert asked.begin().resume["folder"] == "attempts/run-1/pass-00002"
    assert "training goes on behind attempts/run-1/pass-00002" in asked.said[0]
    # Nothing would be left to train: that is no success.
    with pytest.raises(Failure, match="ask for at least 4"):
        Chooser(folder, RESUME_FROM="any", PASSES="3").begin()
    saved(folder, 0, attempt=2)
    assert Chooser(folder).begin().resume["folder"] == "attempts/run-2/pass-00000"


def test_keep_passes_neither_counts_nor_deletes_a_damaged_or_foreign_pass(folder):
    """A damaged pass of a higher number stood there: each pass just saved was deleted."""
    (saved(folder, 9) / "path.txt").write_text("program/train.pz\n")
    saved(folder, 8, identity=OTHER)
    for number in range(3):
        saved(folder, number, attempt=2)
        passes.keep_newest(folder, OURS, 1, set())
    assert names(folder) == ["1/pass-00008", "1/pass-00009", "2/pass-00002"]
    assert not folder.pass_dir(1).is_symlink() and folder.pass_dir(2).exists()
    assert passes.keep_newest(folder, OURS, 0, set()) == []


def test_what_is_half_saved_is_swept_away_and_can_never_be_sealed(folder):
    """† A pod 0 that was frozen in a save comes back when its successor has begun another attempt."""
    saved(folder, 0)
    half = begun(folder, 1, "pass-00001")
    assert passes.discard_incomplete(folder) == [half]
    assert [entry.name for entry in half.iterdir()] == ["done"]
    begun(folder, 1, "pass-00002").rename(folder.output / "what it still writes")
    shutil.copytree(folder.output / "what it still writes", half, dirs_exist_ok=True)
    with pytest.raises(Failure, match="was given up by a later attempt while it was saved"):
        passes.seal(half, {"pass": 1, "attempt": 1, "run": "run", **asdict(OURS)})
    assert names(folder) == ["1/pass-00000"] and passes.discard_incomplete(folder) == []


def test_two_attempts_that_save_the_same_pass_keep_both_and_the_later_one_is_loaded(folder):
    saved(folder, 1, attempt=2)
    saved(folder, 2, attempt=2)
    # The first one was frozen, and seals its own when it is back.
    saved(folder, 1, attempt=1)
    assert names(folder) == ["1/pass-00001", "2/pass-00001", "2/pass-00002"]
    assert Chooser(folder).begin().resume["folder"] == "attempts/run-2/pass-00002"
    assert folder.pass_dir(1).readlink().as_posix() == "attempts/run-2/pass-00001"


def test_a_real_folder_at_the_name_of_a_link_is_left_alone(folder):
    old = folder.pass_dir(0)
    old.mkdir(parents=True)
    (old / "weights").touch()
    chooser = Chooser(folder)
    assert chooser.begin().resume == {}
    assert chooser.said == [f"pass-00000 in {folder.output}: folders without a record of this version, they are left alone"]
    saved(folder, 0)
    assert (old / "weights").is_file() and not old.is_symlink()
    assert Chooser(folder).begin().resume["folder"] == "attempts/run-1/pass-00000"


def test_paddle_0x_marks_its_own_passes_with_an_empty_done(folder):
    for number in (7, 8):
        folder.pass_dir(number).mkdir(parents=True)
    folder.done(7).touch()
    chooser = Chooser(folder, RUNTIME="paddle-0.x")
    assert chooser.begin().resume["pass"] == "7"
    assert chooser.said == ["pass 8 was not complete and is removed"] and not folder.pass_dir(8).exists()
    passes.verify(folder.pass_dir(7))


class TestInterruption:
    """A pass cut short is used by a run that reads the same records in the same order, and by no other."""

    @pytest.fixture
    def half(self, folder) -> Path:
        saved(folder, 0)
        saved(folder, 1)
        directory = begun(folder, 1, "interrupted")
        positions = (Position(10, 9, 3.5, 0.5), Position(8, 8, 2.0, 0.5))
        order, behind = passes.order("data", 7, 2), "attempts/run-1/pass-00001"
        facts = {"behind": behind, "order": order, "trainers": [asdict(each) for each in positions]}
        passes.seal(directory, {"pass": 2, "attempt": 1, "run": "run", **facts, **asdict(OURS)})
        return directory

    def test_it_comes_back_behind_the_same_pass(self, folder, half):
        assert Chooser(folder).begin().resume == {
            "pass": "1",
            "folder": "attempts/run-1/pass-00001",
            "interrupted": "attempts/run-1/interrupted",
        }

    @pytest.mark.parametrize("change", [{"SEED": "8"}, {"DATA": "other"}, {"pass": "0"}])
    def test_it_is_not_for_another_pass_seed_or_data(self, folder, half, change):
        if "pass" in change:
            shutil.rmtree(folder.attempt("run", 1) / "pass-00001")
        identity = Identity(change.pop("DATA", "data"), "program")
        change.pop("pass", None)
        assert "interrupted" not in Chooser(folder, **change).begin(identity=identity).resume

    def test_it_is_not_for_that_pass_trained_anew(self, folder, half):
        saved(folder, 1, attempt=2)
        assert Chooser(folder).begin().resume == {"pass": "1", "folder": "attempts/run-2/pass-00001"}

    def test_damaged_or_half_saved_it_does_not_exist(self, folder, half):
        (half / "path.txt").write_text("program/train.pz\n")
        assert "interrupted" not in Chooser(folder).begin().resume
        (half / "done").unlink()
        assert "interrupted" not in Chooser(folder).begin().resume and not (half / "path.txt").exists()
