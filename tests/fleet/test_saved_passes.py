import json

import pytest
from paddle_node import interruption, passes
from paddle_node.contract import JobFolder
from paddle_node.interruption import Interruption, Position


@pytest.fixture
def folder(tmp_path) -> JobFolder:
    return JobFolder(tmp_path / "job")


def saved(folder: JobFolder, number: int) -> None:
    directory = folder.pass_dir(number)
    (directory / "000").mkdir(parents=True)
    (directory / "000/part-000-00000.gz").write_bytes(b"weights")
    (directory / "path.txt").write_text("train.py\n")
    passes.seal(folder, number, {"attempt": 1})


def test_a_sealed_pass_lists_its_files_and_says_done_last(folder):
    saved(folder, 0)
    listed = json.loads((folder.pass_dir(0) / "files.json").read_text())
    assert [(file["name"], file["bytes"]) for file in listed] == [("000/part-000-00000.gz", 7), ("path.txt", 9)]
    assert all(file["checksum"].startswith("xxh3_128:") for file in listed)
    assert json.loads(folder.done(0).read_text())["attempt"] == 1
    passes.verify(folder.pass_dir(0))


def test_only_whole_passes_are_the_newest(folder):
    assert passes.newest_complete(folder) is None
    for number in range(4):
        saved(folder, number)
    folder.done(3).unlink()
    (folder.pass_dir(2) / "path.txt").unlink()
    assert passes.newest_complete(folder) == 1
    (folder.pass_dir(1) / "000/part-000-00000.gz").write_bytes(b"short")
    assert passes.newest_complete(folder) == 0


def test_what_is_half_saved_is_swept_away_and_nothing_else(folder):
    for number in range(3):
        saved(folder, number)
    folder.done(1).unlink()
    (folder.output / "node_0").mkdir()
    assert passes.discard_incomplete(folder) == [1]
    assert sorted(entry.name for entry in folder.output.iterdir()) == ["node_0", "pass-00000", "pass-00002"]


def test_the_newest_are_kept(folder):
    for number in range(5):
        saved(folder, number)
    assert passes.keep_newest(folder, 0) == []
    assert passes.keep_newest(folder, 2) == [0, 1, 2]
    assert passes.numbers(folder) == [3, 4]


@pytest.mark.parametrize("file", ["000/part-000-00000.gz", "path.txt", "files.json"])
def test_a_changed_byte_in_any_file_is_found(folder, file):
    saved(folder, 0)
    path = folder.pass_dir(0) / file
    path.write_bytes(path.read_bytes().replace(b"t", b"T", 1))
    with pytest.raises(passes.DamagedPass, match="cannot be loaded"):
        passes.verify(folder.pass_dir(0))


def test_paddle_0x_marks_its_own_passes_with_an_empty_done(folder):
    folder.pass_dir(7).mkdir(parents=True)
    folder.done(7).touch()
    assert passes.newest_complete(folder) == 7
    passes.verify(folder.pass_dir(7))


class TestInterruption:
    """A pass cut short is used by a run that reads the same records in the same order, and by no other."""

    @pytest.fixture
    def interrupted(self, folder) -> Interruption:
        found = Interruption(2, interruption.order(folder, 7, 2), (Position(10, 9, 3.5, 0.5), Position(8, 8, 2.0, 0.5)))
        interruption.directory(folder).mkdir(parents=True)
        (interruption.directory(folder) / "parameters.json").write_text("{}")
        interruption.write(folder, found)
        return found

    def test_it_comes_back_behind_the_same_pass(self, folder, interrupted):
        assert interruption.read(folder, 1, interruption.order(folder, 7, 2)) == interrupted
        assert passes.numbers(folder) == []

    @pytest.mark.parametrize(("resume", "seed", "trainers"), [(0, 7, 2), (None, 7, 2), (1, 8, 2), (1, 7, 3)])
    def test_it_is_not_for_another_pass_seed_or_number_of_trainers(self, folder, interrupted, resume, seed, trainers):
        assert interruption.read(folder, resume, interruption.order(folder, seed, trainers)) is None

    def test_it_is_not_for_other_data(self, folder, interrupted):
        folder.data_manifest.write_text("{}")
        assert interruption.read(folder, 1, interruption.order(folder, 7, 2)) is None

    def test_it_stays_good_when_another_data_job_finds_the_same_data(self, folder):
        manifest = {"version": 1, "shards": [{"index": 0}], "created": "2026-11-01", "job": "0ld"}
        folder.root.mkdir(exist_ok=True)
        folder.data_manifest.write_text(json.dumps(manifest))
        before = interruption.order(folder, 7, 2)
        folder.data_manifest.write_text(json.dumps(manifest | {"created": "2026-11-02", "job": "new"}, indent=1))
        assert interruption.order(folder, 7, 2) == before
        folder.data_manifest.write_text(json.dumps(manifest | {"shards": [{"index": 1}]}))
        assert interruption.order(folder, 7, 2) != before

    def test_half_saved_it_does_not_exist(self, folder, interrupted):
        (interruption.directory(folder) / "done").unlink()
        assert interruption.read(folder, 1, interruption.order(folder, 7, 2)) is None
