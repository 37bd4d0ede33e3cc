"""An s3:// source, read by boto3 from an emulated S3."""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from job_folder import Job, table
from paddle_node.data.sources.s3_source import S3Source
from paddle_node.failure import Failure

from paddle_aws.rehearsal.cloud import Cloud

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(
        project=Path(__file__).parents[2], state=tmp_path_factory.mktemp("cloud")
    ) as started:
        yield started


@pytest.fixture
def s3(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    # boto3's own session keeps the keys of this process' first account.
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    return cloud.client("s3")


OBJECTS = {
    "sources/a.txt": b"a1\na2",
    "sources/b.txt.gz": gzip.compress(b"b1\nb2\n"),
    "sources/deep/c.txt": b"c1\n",
    "sources/deep/": b"",
    "sources.txt": b"other\n",
}


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> str:
    name = f"b{abs(hash(request.node.name))}"
    s3.create_bucket(
        Bucket=name, CreateBucketConfiguration={"LocationConstraint": s3.meta.region_name}
    )
    for key, content in OBJECTS.items():
        s3.put_object(Bucket=name, Key=key, Body=content)
    return name


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("sources/a.txt", "a1 a2"),
        ("sources/b.txt.gz", "b1 b2"),
        ("sources", "a1 a2 b1 b2 c1"),
        ("sources/", "a1 a2 b1 b2 c1"),
        ("sources/*.txt", "a1 a2 c1"),
        ("", "a1 a2 b1 b2 c1 other"),
    ],
)
def test_object_prefix_and_pattern_and_a_change_is_noticed(
    job: Job, bucket: str, s3: Any, address: str, expected: str
) -> None:
    manifest = job.split(f"s3://{bucket}/{address}", 1)
    assert job.records() == expected.encode().split()
    assert manifest.source.uri == f"s3://{bucket}/{address}"
    assert job.split(f"s3://{bucket}/{address}", 1) == manifest
    s3.put_object(Bucket=bucket, Key="sources/a.txt", Body=b"a3\n")
    job.split(f"s3://{bucket}/{address}", 1)
    assert job.records() == expected.replace("a1 a2", "a3").encode().split()


def test_keys_are_any_text_and_lead_nowhere_else(job: Job, bucket: str, s3: Any) -> None:
    for key in ("odd//etc/x", "odd/a//b", "odd/./c", "odd/.hidden/d", "odd/e/../../../../f"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"1\n")
    job.split(f"s3://{bucket}/odd", 1, DATA_FORMAT="files")
    assert set(job.data()) == {"0/data/etc/x", "0/data/a/b"}


def refused(self) -> None:
    raise ClientError(
        {"Error": {"Code": "AccessDenied", "Message": "no"}, "ResponseMetadata": {}},
        "ListObjectsV2",
    )


@pytest.mark.parametrize("row", table("bucket_refused.yaml"), ids=lambda row: row["sentence"])
def test_what_cannot_be_read_is_told_apart(
    job: Job, bucket: str, monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]
) -> None:
    change = row.get("change", "")
    if change == "refused":  # The emulator allows everything, so the test supplies S3's refusal.
        monkeypatch.setattr(S3Source, "_list_single", refused)
    elif change == "AWS_ENDPOINT_URL":
        monkeypatch.setenv(change, "http://localhost:9")
    elif change:
        monkeypatch.delenv(change)
        monkeypatch.setattr(
            boto3, "DEFAULT_SESSION", None
        )  # The default session keeps credentials.
    with pytest.raises(Failure) as caught:
        job.split("s3://" + row["address"].replace("BUCKET", bucket))
    assert (
        caught.value.code == row["code"]
        and row["sentence"].replace("BUCKET", bucket) in caught.value.sentence
    )
