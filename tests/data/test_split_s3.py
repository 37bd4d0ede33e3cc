"""An s3:// source, read by boto3 from an emulated S3."""

import contextlib
import gzip
import os
import re
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from job_folder import Job
from paddle_node.data.sources.s3_source import S3Source
from paddle_node.failure import Failure

MINISTACK = Path(__file__).parents[2] / ".venv-emulator" / "bin" / "ministack"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment that leads boto3 to an emulator of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("ministack")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | {"GATEWAY_PORT": str(port)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([MINISTACK], env=environ, cwd=folder, stdout=log, stderr=log)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://localhost:{port}/_ministack/health", timeout=2).close()
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.1)
        yield {
            "AWS_ENDPOINT_URL": f"http://localhost:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-west-2",
            "AWS_DEFAULT_REGION": "us-west-2",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def s3(aws: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in aws.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", "/nonexistent")
    return boto3.client("s3")


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> str:
    name = "b" + str(abs(hash(request.node.name)))
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    for key, content in {
        "sources/a.txt": b"a1\na2",
        "sources/b.txt.gz": gzip.compress(b"b1\nb2\n"),
        "sources/deep/c.txt": b"c1\n",
        "sources/deep/": b"",
        "sources.txt": b"other\n",
    }.items():
        s3.put_object(Bucket=name, Key=key, Body=content)
    return name


def lines(job: Job, shards: int) -> list[bytes]:
    return b"".join(job.shard(index) for index in range(shards)).splitlines()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("sources/a.txt", [b"a1", b"a2"]),
        ("sources/b.txt.gz", [b"b1", b"b2"]),
        ("sources", [b"a1", b"a2", b"b1", b"b2", b"c1"]),
        ("sources/", [b"a1", b"a2", b"b1", b"b2", b"c1"]),
        ("sources/*.txt", [b"a1", b"a2", b"c1"]),
        ("", [b"other", b"a1", b"a2", b"b1", b"b2", b"c1"]),
    ],
)
def test_object_prefix_and_pattern(job: Job, bucket: str, address: str, expected: list[bytes]) -> None:
    manifest = job.split(f"s3://{bucket}/{address}", 1)
    assert sorted(lines(job, 1)) == sorted(expected)
    assert manifest.source.uri == f"s3://{bucket}/{address}"


def test_keys_are_any_text_and_lead_nowhere_else(job: Job, bucket: str, s3: Any) -> None:
    for key in ("odd//etc/x", "odd/a//b", "odd/./c", "odd/.hidden/d", "odd/e/../../../../f"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"1\n")
    job.split(f"s3://{bucket}/odd", 1, DATA_FORMAT="files")
    found = {str(path.relative_to(job.folder.shard(0))) for path in job.folder.shard(0).rglob("*") if path.is_file()}
    assert found == {"etc/x", "a/b"}


def test_a_changed_object_is_noticed_and_an_unchanged_one_left_alone(job: Job, bucket: str, s3: Any) -> None:
    first = job.split(f"s3://{bucket}/sources/a.txt", 2)
    assert job.split(f"s3://{bucket}/sources/a.txt", 2) == first
    s3.put_object(Bucket=bucket, Key="sources/a.txt", Body=b"x1\nx2\nx3\n")
    job.split(f"s3://{bucket}/sources/a.txt", 2)
    assert sorted(lines(job, 2)) == [b"x1", b"x2", b"x3"]


class Cutting:
    """Between boto3 and S3: the first answer that is longer than 2 MiB ends there."""

    def __init__(self, to: str) -> None:
        self._to = ("localhost", int(to.rpartition(":")[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: list[bytes] = []
        self.cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            there = socket.create_connection(self._to)
            threading.Thread(target=self._pass_on, args=(here, there, True), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(there, here, False), daemon=True).start()

    def _pass_on(self, source: socket.socket, to: socket.socket, asks: bool) -> None:
        passed = 0
        with source, to, contextlib.suppress(OSError):
            while block := source.recv(1 << 16):
                if asks and b"GET " in block:
                    self.asked.append((re.search(rb"(?im)^Range: *(\S+)", block) or [b"", b""])[1])
                to.sendall(block)
                passed += len(block)
                if not asks and not self.cut and passed > 2 << 20:
                    self.cut = True
                    source.shutdown(socket.SHUT_RDWR)
                    to.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


def test_a_connection_that_breaks_is_resumed_by_range(job: Job, bucket: str, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"".join(b"line %d\n" % number for number in range(400_000))
    s3.put_object(Bucket=bucket, Key="large", Body=content)
    between = Cutting(os.environ["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", between.address)
    job.split(f"s3://{bucket}/large", 1)
    between.close()
    assert between.cut
    ranges = [int(asked.partition(b"=")[2][:-1]) for asked in between.asked if asked]
    assert len(ranges) == 1
    assert 1 << 20 < ranges[0] < len(content)
    assert sorted(lines(job, 1)) == sorted(content.splitlines())


def test_two_processes_read_one_object_each_by_connections_of_its_own(
    job: Job, bucket: str, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddle_node.data.lanes.WORTH", 1)
    lines = [b"line %d of a text" % number for number in range(50_000)]
    s3.put_object(Bucket=bucket, Key="two-lanes.txt", Body=b"\n".join(lines))
    job.split(f"s3://{bucket}/two-lanes.txt", SHUFFLE_SEED=1, HOLD_OUT=0.1)
    assert job.records() == sorted(lines)
    assert {name.split("part-")[1][:5] for name in job.data()} == {"00000", "00001"}


def refused(self) -> None:
    raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}, "ResponseMetadata": {}}, "ListObjectsV2")


@pytest.mark.parametrize(
    ("address", "change", "code", "sentence"),
    [
        ("BUCKET/absent", "", 2, "DATA_SOURCE is s3://BUCKET/absent: the bucket holds no object of that name or below it"),
        ("no-such-bucket-here/x", "", 2, "DATA_SOURCE is s3://no-such-bucket-here/x: there is no bucket no-such-bucket-here"),
        ("Not A Bucket/x", "", 2, "DATA_SOURCE is s3://Not A Bucket/x: 'Not A Bucket' is no bucket's name"),
        (
            "BUCKET/sources",
            "AWS_ACCESS_KEY_ID",
            77,
            "needs AWS credentials and this pod has none: its service account has no pod",
        ),
        ("BUCKET/sources", "AWS_ENDPOINT_URL", 68, "s3://BUCKET/sources cannot be read: "),
        ("BUCKET/sources", "refused", 77, "s3:GetObject on bucket BUCKET, and kms:Decrypt on its key"),
    ],
)
def test_what_cannot_be_read_is_told_apart(
    job: Job, bucket: str, monkeypatch: pytest.MonkeyPatch, address: str, change: str, code: int, sentence: str
) -> None:
    if change == "refused":  # The emulator allows everything, so S3's answer itself is played.
        monkeypatch.setattr(S3Source, "_single", refused)
    elif change == "AWS_ENDPOINT_URL":
        monkeypatch.setenv(change, "http://localhost:9")
    elif change:
        monkeypatch.delenv(change)
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # It remembers credentials.
    with pytest.raises(Failure) as caught:
        job.split("s3://" + address.replace("BUCKET", bucket))
    assert caught.value.code == code and sentence.replace("BUCKET", bucket) in caught.value.sentence
