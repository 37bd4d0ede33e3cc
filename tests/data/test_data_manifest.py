"""data-manifest.json: its layout is a contract, and what is damaged is refused."""

import functools
import json
import operator
from pathlib import Path

import pytest
import xxhash
from job_folder import Job, lines_file, table
from paddle_node import durable
from paddle_node.data import data_manifest
from paddle_node.data.data_manifest import ManifestError
from paddle_node.failure import Failure
from paddle_node.staging.shard_copy import stage


@pytest.fixture
def text(job: Job, tmp_path: Path) -> str:
    """The manifest of a split of four lines: one in each of three shards, one held out."""
    job.split(lines_file(tmp_path / "in", 4), SHUFFLE_SEED="1", HOLD_OUT="0.1", PADDLE_NODE_RUN_ID="one", POD_UID="pod")
    return job.folder.data_manifest.read_text()


def test_its_layout_is_the_contract_of_tools_and_people(job: Job, tmp_path: Path, text: str) -> None:
    document = json.loads(text)
    files = [{"name": f"splits/one/0.pod/{place}/part-00000-00000", "records": 1, "bytes": 7} for place in (0, 1, 2, "held-out")]
    for file in files:
        file["checksum"] = (
            data_manifest.CHECKSUM + ":" + xxhash.xxh3_128((job.folder.root / str(file["name"])).read_bytes()).hexdigest()
        )
    assert document == {
        "version": 2,
        "source": {"uri": str(tmp_path / "in"), "size": 28, "etag": document["source"]["etag"]},
        "format": "lines",
        "seed": "1",
        "hold_out": 0.1,
        "shards": [{"index": index, "files": [files[index]]} for index in range(3)],
        "held_out": {"files": [files[3]]},
        "records": 3,
        "indexes": 1,
        "created": document["created"],
    }


@pytest.mark.parametrize("wrong", table("manifests.yaml"), ids=lambda wrong: wrong["sentence"])
def test_what_is_not_right_is_refused_by_name(job: Job, text: str, wrong: dict) -> None:
    document = json.loads(text)
    *path, last = wrong["at"]
    functools.reduce(operator.getitem, path, document)[last] = wrong["is"]
    file = job.folder.data_manifest
    file.write_text(json.dumps(document))
    with pytest.raises(Failure) as caught:
        stage(job.folder, 1, 3)
    assert (caught.value.code, caught.value.sentence) == (65, f"{file} cannot be trusted: {wrong['sentence']}")


@pytest.mark.parametrize("change", [("{", "[" * 100_000), ("0.1", "9" * 400), ("0/part", r"0/\ud800")])
def test_what_json_cannot_hold_is_refused_and_blocks_no_other_split(job: Job, text: str, change: tuple[str, str]) -> None:
    folder = job.folder
    durable.write(folder.splits / "x/manifest.json", text.replace(*change))
    (folder.splits / "y/manifest.json").mkdir(parents=True)
    with pytest.raises(ManifestError):
        data_manifest.read(folder.splits / "x/manifest.json")
    found = data_manifest.find(folder, data_manifest.digest(folder.data_manifest))
    assert found == folder.splits / "one/manifest.json"
