"""data-manifest.json: what is written is read back, what is damaged is refused, and nobody sees half of it."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paddle_node.contract import JobFolder
from paddle_node.data import data_manifest
from paddle_node.data.data_manifest import DataFile, DataManifest, ManifestError, Shard, Source

LAYOUT = "splits/<split>/<index>.<pod>/<shard>/<file>"


def manifest(counts: tuple[int, ...] = (2, 1), name: str = "splits/one/0.pod/0/part") -> DataManifest:
    return DataManifest(
        source=Source("s3://bucket/key", 12, '"etag"'),
        format="lines",
        seed="1",
        hold_out=0.1,
        shards=tuple(Shard(index, (DataFile(name, count, count * 4, "xxh3_128:00"),)) for index, count in enumerate(counts)),
        held_out=(DataFile(name, 1, 4, "xxh3_128:01"),),
        created="2026-11-21T00:00:00+00:00",
        records=sum(counts),
    )


def test_its_layout_is_the_contract_of_tools_and_people() -> None:
    assert json.loads(manifest().as_json()) == {
        "version": 2,
        "source": {"uri": "s3://bucket/key", "size": 12, "etag": '"etag"'},
        "format": "lines",
        "seed": "1",
        "hold_out": 0.1,
        "shards": [
            {
                "index": 0,
                "files": [{"name": "splits/one/0.pod/0/part", "records": 2, "bytes": 8, "checksum": "xxh3_128:00"}],
            },
            {
                "index": 1,
                "files": [{"name": "splits/one/0.pod/0/part", "records": 1, "bytes": 4, "checksum": "xxh3_128:00"}],
            },
        ],
        "held_out": {"files": [{"name": "splits/one/0.pod/0/part", "records": 1, "bytes": 4, "checksum": "xxh3_128:01"}]},
        "records": 3,
        "indexes": 1,
        "created": "2026-11-21T00:00:00+00:00",
    }


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**60))
def test_what_is_written_is_read_back(uri: str, size: int) -> None:
    one = manifest()
    one = DataManifest(**{**vars(one), "source": Source(uri, size, "")})
    assert data_manifest.parse(json.loads(one.as_json())) == one


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("version",), 1, "it has version 1, this image reads 2"),
        (("records",), "3", "records is '3', not a whole number from 0"),
        (("records",), True, "records is True, not a whole number from 0"),
        (("records",), 4, "its shards hold 3 records together, but it says 4"),
        (("shards",), [], "it lists no shard"),
        (("shards",), {}, "shards is {}, not a list"),
        (("shards", 0, "index"), 1, "its shards are numbered [1, 1], not 0 to 1"),
        (("shards", 0, "files", 0, "bytes"), -1, "bytes is -1, not a whole number from 0"),
        *(
            (
                ("shards", 0, "files", 0, "name"),
                name,
                f"a file is named {name!r}, not splits/<split>/<index>.<pod>/<shard>/<file>",
            )
            for name in ("/etc/passwd", "../../x", "x", "splits/x/0.y/0/..", "splits/x/0.y/0/a\0", "splits/x/0.y/0/\ud800")
        ),
        (("source", "uri"), None, "uri is None, not a text"),
        (("held_out",), None, "held_out is None, not an object"),
    ],
)
def test_what_is_not_right_is_refused_by_name(tmp_path: Path, path: tuple, value: object, sentence: str) -> None:
    document = json.loads(manifest().as_json())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file = tmp_path / "data-manifest.json"
    file.write_text(json.dumps(document))
    with pytest.raises(ManifestError) as caught:
        data_manifest.read(file)
    assert caught.value.sentence == f"{file} is not to be trusted: {sentence}"
    assert caught.value.code == 65


def test_only_what_somebody_must_mend_is_bad_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the volume says nothing about the data: it may pass."""
    file = tmp_path / "data-manifest.json"
    file.mkdir()
    with pytest.raises(ManifestError, match=r"cannot be read: .*Is a directory"):
        data_manifest.read(file)

    def stale(path: Path) -> str:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(Path, "read_text", stale)
    with pytest.raises(OSError, match="Stale file handle") as caught:
        data_manifest.read(file)
    assert caught.value.filename == str(file)


def test_counts_of_two_shards_differ_by_the_number_of_indexes_at_most() -> None:
    with pytest.raises(ManifestError, match="its shards hold between 1 and 3 records: they may differ by 1 at most"):
        manifest((1, 3))
    assert replace(manifest(), indexes=2, shards=manifest((2, 1)).shards).indexes == 2


def test_its_digest_names_the_data_wherever_the_split_lies(tmp_path: Path) -> None:
    digests = []
    for number, (name, split, job) in enumerate([("a", "one", ""), ("a", "two", "hash"), ("b", "one", "")]):
        one = manifest(name=f"splits/{split}/0.pod/0/{name}")
        data_manifest.write(replace(one, job=job, created=str(number)), tmp_path / f"{number}.json")
        digests.append(data_manifest.digest(tmp_path / f"{number}.json"))
    assert digests[0] == digests[1] != digests[2]
    assert data_manifest.digest(tmp_path / "none") == ""


@pytest.mark.parametrize("text", ["[" * 100_000, '{"hold_out": ' + "9" * 400 + "}"])
def test_what_json_cannot_hold_is_refused_and_blocks_no_other_split(tmp_path: Path, text: str) -> None:
    whole = json.loads(manifest().as_json())
    folder = JobFolder(tmp_path)
    data_manifest.write(manifest(), folder.data_manifest)
    (folder.splits / "x").mkdir(parents=True)
    if not text.startswith("["):
        text = json.dumps(whole).replace('"hold_out": 0.1', text[1:-1])
    (folder.splits / "x" / "manifest.json").write_text(text)
    (folder.splits / "y" / "manifest.json").mkdir(parents=True)
    with pytest.raises(ManifestError):
        data_manifest.read(folder.splits / "x" / "manifest.json")
    assert data_manifest.find(folder, data_manifest.digest(folder.data_manifest)) == folder.data_manifest


def test_none_where_there_is_none(tmp_path: Path) -> None:
    assert data_manifest.read(tmp_path / "data-manifest.json") is None


def test_a_write_that_fails_leaves_the_old_one_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "data-manifest.json"
    data_manifest.write(manifest(), file)
    before = file.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        data_manifest.write(manifest((5, 5)), file)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["data-manifest.json"]
