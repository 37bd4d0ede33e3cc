"""data-manifest.json: what is written is read back, what is damaged is refused."""

import errno
import functools
import json
import operator
import os
from pathlib import Path

import pytest
from job_folder import table
from paddle_node import durable
from paddle_node.contract import JobFolder
from paddle_node.data import data_manifest
from paddle_node.data.data_manifest import DataFile, DataManifest, ManifestError, Shard, Source


def manifest(counts: tuple[int, ...] = (2, 1), name: str = "splits/one/0.pod/0/part") -> DataManifest:
    return DataManifest(
        source=Source('s3://bucket/ü\\"', 12, '"etag"'),
        format="lines",
        seed="1",
        hold_out=0.1,
        shards=tuple(Shard(index, (DataFile(name, count, count * 4, "xxh3_128:00"),)) for index, count in enumerate(counts)),
        held_out=(DataFile(name, 1, 4, "xxh3_128:01"),),
        created="2026-11-21T00:00:00+00:00",
        records=sum(counts),
    )


def test_its_layout_is_the_contract_of_tools_and_people_and_is_read_back() -> None:
    file = {"name": "splits/one/0.pod/0/part", "records": 2, "bytes": 8, "checksum": "xxh3_128:00"}
    document = json.loads(manifest().as_json())
    assert document == {
        "version": 2,
        "source": {"uri": 's3://bucket/ü\\"', "size": 12, "etag": '"etag"'},
        "format": "lines",
        "seed": "1",
        "hold_out": 0.1,
        "shards": [{"index": 0, "files": [file]}, {"index": 1, "files": [file | {"records": 1, "bytes": 4}]}],
        "held_out": {"files": [file | {"records": 1, "bytes": 4, "checksum": "xxh3_128:01"}]},
        "records": 3,
        "indexes": 1,
        "created": "2026-11-21T00:00:00+00:00",
    }
    assert data_manifest.parse(document) == manifest()


@pytest.mark.parametrize("wrong", table("manifests.yaml"), ids=lambda wrong: wrong["sentence"])
def test_what_is_not_right_is_refused_by_name(tmp_path: Path, wrong: dict) -> None:
    document = json.loads(manifest().as_json())
    *path, last = wrong["at"]
    functools.reduce(operator.getitem, path, document)[last] = wrong["is"]
    file = tmp_path / "data-manifest.json"
    file.write_text(json.dumps(document))
    with pytest.raises(ManifestError) as caught:
        data_manifest.read(file)
    assert (caught.value.code, caught.value.sentence) == (65, f"{file} cannot be trusted: {wrong['sentence']}")


def test_a_fault_of_the_volume_says_nothing_about_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "data-manifest.json"
    assert data_manifest.read(file) is None
    file.mkdir()
    with pytest.raises(ManifestError, match=r"cannot be read: .*Is a directory"):
        data_manifest.read(file)

    def stale(path: Path) -> str:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(Path, "read_text", stale)
    with pytest.raises(OSError, match="Stale file handle") as caught:
        data_manifest.read(file)
    assert caught.value.filename == str(file)


WHOLE = manifest().as_json()


@pytest.mark.parametrize("text", ["[" * 100_000, WHOLE.replace("0.1", "9" * 400), WHOLE.replace("0/part", r"0/\ud800")])
def test_what_json_cannot_hold_is_refused_and_blocks_no_other_split(tmp_path: Path, text: str) -> None:
    folder = JobFolder(tmp_path)
    durable.write(folder.data_manifest, WHOLE)
    durable.write(folder.splits / "x/manifest.json", text)
    (folder.splits / "y/manifest.json").mkdir(parents=True)
    with pytest.raises(ManifestError):
        data_manifest.read(folder.splits / "x/manifest.json")
    assert data_manifest.find(folder, data_manifest.digest(folder.data_manifest)) == folder.data_manifest
