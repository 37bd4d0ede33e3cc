"""The emulated account as the rehearsal uses it: no command in it can reach a real one."""

import os
from pathlib import Path

import pytest

from paddle_aws.rehearsal.cloud import Cloud, CloudError

PROJECT = Path(__file__).parents[2]


def test_nothing_of_the_callers_account_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "CDK_DEFAULT_ACCOUNT"):
        monkeypatch.setenv(name, "the caller's own")
    environ = Cloud(project=PROJECT, state=tmp_path)._environ()
    assert "the caller's own" not in environ.values()
    assert environ["PATH"].split(os.pathsep)[0] == str(PROJECT / ".venv" / "bin")


def test_a_missing_emulator_is_one_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(CloudError, match="run `make rehearse`, which makes it"),
        Cloud(project=tmp_path, state=tmp_path),
    ):
        pass


def test_a_large_file_leaves_nothing_once_its_bucket_is_gone(cloud: Cloud, tmp_path: Path) -> None:
    """Files of more than 8 MB are uploaded in parts: such a rehearsal's destroy was refused."""
    s3, before, file = cloud.client("s3"), cloud.inventory(), tmp_path / "ratings.dat"
    file.write_bytes(b"1::2::3::4\n" * 900_000)
    here = {"LocationConstraint": s3.meta.region_name}
    s3.create_bucket(Bucket="data", CreateBucketConfiguration=here)
    cloud.client("s3").upload_file(str(file), "data", "ratings.dat")
    assert cloud.inventory() != before
    s3.delete_object(Bucket="data", Key="ratings.dat")
    s3.delete_bucket(Bucket="data")
    assert cloud.inventory() == before
