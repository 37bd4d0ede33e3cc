"""What is brought to the deployed account before a rehearsal's job: data over an earlier version, an image's record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from operations.bucket_upload import CHECKSUM
from rehearsal import account
from rehearsal.cloud import Cloud


class Recorded:
    """A cloud that keeps what it is asked for. What AWS makes of it, the slow tests see at the emulator."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def client(self, service: str) -> Any:
        return self

    def put_object(self, **arguments: Any) -> None:
        self.asked.append(("put_object", arguments))

    def head_object(self, **arguments: Any) -> dict[str, Any]:
        return {"Metadata": {}, "ContentLength": 19}

    def put_image(self, **arguments: Any) -> dict[str, Any]:
        self.asked.append(("put_image", arguments))
        return {"image": {"imageId": {"imageDigest": "sha256:" + "ab" * 32}}}


def test_the_data_goes_over_an_earlier_version(tmp_path: Path) -> None:
    (tmp_path / "sample.tsv").write_text("a\tb\n")
    cloud = Recorded()
    account.upload(cast(Cloud, cloud), tmp_path / "sample.tsv", "s3://bucket/sources/sample.tsv")
    earlier, now = (arguments for _, arguments in cloud.asked)
    assert (earlier["Bucket"], earlier["Key"]) == (now["Bucket"], now["Key"]) == ("bucket", "sources/sample.tsv")
    assert (earlier["Body"], now["Body"]) == (b"an earlier version\n", b"a\tb\n")
    assert now["Metadata"][CHECKSUM].startswith("xxh3_128:")


def test_the_images_record_is_named_by_its_digest(tmp_path: Path) -> None:
    cloud = Recorded()
    uri = "000000000000.dkr.ecr.us-west-2.amazonaws.com/paddle/trainer"
    reference = account.record_image(cast(Cloud, cloud), uri, tmp_path / "image.json")
    assert reference == f"{uri}@sha256:{'ab' * 32}"
    assert json.loads((tmp_path / "image.json").read_text()) == {"image": reference}
    ((_, arguments),) = cloud.asked
    assert arguments["repositoryName"] == "paddle/trainer"
    manifest = json.loads(arguments["imageManifest"])
    assert manifest["mediaType"] == arguments["imageManifestMediaType"] and manifest["layers"] == []
