"""What becomes of the files that agents have copied to the volume, with `checkpoints: local`."""

import errno
from pathlib import Path

import pytest
from paddle_node.failure import BadData
from paddle_node.volume import durable, publication


def lay(root: Path, key: str, rank: int, **texts: str) -> publication.Files:
    """Copies files as an agent does; `to_...` are links."""
    files: dict = {}
    for name, text in texts.items():
        of = "output/" + name.replace("__", "/")
        path = root / publication.COPIES / key / str(rank) / of
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("->"):
            path.symlink_to(text[2:])
            files[of] = [0, publication.LINK + text[2:]]
        else:
            path.write_text(text)
            files[of] = [len(text), text]
    rest = key.startswith("rest")
    publication.list_part(root, key, rank, {} if rest else files, files if rest else {})
    return files


def publish(root: Path, key: str, name: str, parts: list | None, ranks: int) -> None:
    publication.publish(root, key, name, parts, ranks)
    publication.install(root)


def read(root: Path) -> dict[str, str]:
    files = [path for path in (root / "output").rglob("*") if path.is_symlink() or path.is_file()]
    return {
        path.relative_to(root / "output").as_posix(): f"->{path.readlink()}"
        if path.is_symlink()
        else path.read_text()
        for path in files
    }


def test_a_list_that_names_files_outside_the_output_moves_nothing(tmp_path):
    root = tmp_path / "attempt"
    lay(root, "rest", 0)
    (root / publication.COPIES / "rest/0.json").write_text(
        '{"files": {}, "others": {"output/../../victim": [1, "x"]}}'
    )
    (root / publication.COPIES / "rest/0/output").mkdir(parents=True)
    (root / publication.COPIES / "rest/victim").write_text("x")
    with pytest.raises(BadData, match="which is not below output"):
        publish(root, "rest", "", None, 1)
    assert not (tmp_path / "victim").exists() and not publication.read_records(root)


def test_a_folder_and_a_file_of_one_name_in_two_pods_are_both_kept(tmp_path):
    for number, (first, second) in enumerate([({"a": "1"}, {"a__b": "2"}),
                                              ({"a__b": "2"}, {"a": "1"})]):  # fmt: skip
        root = tmp_path / str(number)
        lay(root, "rest", 0, **first)
        lay(root, "rest", 1, **second)
        publish(root, "rest", "", None, 2)
        lower, higher = (next(iter(part)).replace("__", "/") for part in (first, second))
        assert read(root).keys() == {lower, f"pod-1/{higher}"}


def test_no_file_is_moved_through_a_link_that_had_its_place(tmp_path):
    first = lay(tmp_path, "1", 0, **{"step-1__part": "one"})
    publish(tmp_path, "1", "output/step-1", [first], 1)
    lay(tmp_path, "rest", 0, latest="->step-1")
    publish(tmp_path, "rest", "", None, 1)
    second = lay(tmp_path, "2", 0, latest__part="two")
    publish(tmp_path, "2", "output/latest", [second], 1)
    assert read(tmp_path) == {"step-1/part": "one", "latest/part": "two"}


def test_a_link_does_not_replace_a_checkpoint_of_its_name(tmp_path):
    first = lay(tmp_path, "1", 0, last__part="one")
    publish(tmp_path, "1", "output/last", [first], 1)
    lay(tmp_path, "rest", 0, last="->elsewhere", log="text")
    publish(tmp_path, "rest", "", None, 1)
    assert read(tmp_path) == {"last/part": "one", "pod-0/last": "->elsewhere", "log": "text"}


def test_what_is_the_same_in_two_pods_is_there_once_until_one_changes_it(tmp_path):
    both = [lay(tmp_path, "rest", rank, log="1") for rank in (0, 1)]
    publish(tmp_path, "rest", "", None, 2)
    assert read(tmp_path) == {"log": "1"}
    for key, expected in (("rest-2", {"log": "12"}), ("rest-3", {"log": "12", "pod-1/log": "1"})):
        lay(tmp_path, key, 0, log="12")
        if key == "rest-2":  # The pod has seen it on the volume.
            publication.list_part(tmp_path, key, 1, {}, both[1])
        else:
            lay(tmp_path, key, 1, log="1")
        publish(tmp_path, key, "", None, 2)
        assert read(tmp_path) == expected


def test_a_published_checkpoint_is_not_overwritten_by_what_is_left_of_a_later_one(tmp_path):
    first = lay(tmp_path, "1", 0, latest="whole")
    publish(tmp_path, "1", "output/latest", [first], 1)
    lay(tmp_path, "rest", 0, latest="ha")
    publish(tmp_path, "rest", "", None, 1)
    assert read(tmp_path) == {"latest": "whole", "pod-0/latest": "ha"}


def test_a_file_that_became_part_of_a_checkpoint_stays(tmp_path):
    lay(tmp_path, "rest", 0, epoch="x", log="1")
    publish(tmp_path, "rest", "", None, 1)
    part = lay(tmp_path, "1", 0, epoch="x")
    publish(tmp_path, "1", "output/epoch", [part], 1)
    assert read(tmp_path) == {"epoch": "x"}
    publication.discard(tmp_path, ["output/epoch"])
    assert read(tmp_path) == {}


def test_the_next_copies_of_the_same_key_wait_for_their_own_record(tmp_path):
    for text in ("1", "2"):
        lay(tmp_path, "rest", 0, log=text)
        publication.install(tmp_path)
        publish(tmp_path, "rest", "", None, 1)
        assert read(tmp_path) == {"log": text}


@pytest.mark.parametrize("left", ["now", "by an earlier run"])
def test_a_file_of_the_name_of_a_pods_folder_is_kept(tmp_path, left):
    """No `pod-1/log` can be below a file `pod-1`."""
    if left == "now":
        lay(tmp_path, "rest", 0, **{"pod-1": "x", "log": "0"})
    else:
        lay(tmp_path, "rest", 0, log="0")
        (tmp_path / "output").mkdir()
        (tmp_path / "output/pod-1").write_text("x")
    lay(tmp_path, "rest", 1, log="1")
    publish(tmp_path, "rest", "", None, 2)
    assert read(tmp_path) == {"pod-1": "x", "log": "0", "pod-1-2/log": "1"}


def test_a_deletion_is_followed_although_the_record_after_it_failed_once(tmp_path, monkeypatch):
    lay(tmp_path, "rest", 0, log="1")
    publish(tmp_path, "rest", "", None, 1)
    part, write = lay(tmp_path, "1", 0, epoch="x"), durable.write

    def fail(path, *more):
        if path.suffix == ".json":
            raise OSError(errno.EIO, "I/O error")
        write(path, *more)

    monkeypatch.setattr(durable, "write", fail)
    with pytest.raises(OSError, match="I/O"):
        publish(tmp_path, "1", "output/epoch", [part], 1)
    monkeypatch.setattr(durable, "write", write)
    publish(tmp_path, "1", "output/epoch", [part], 1)
    assert read(tmp_path) == {"epoch": "x"}
