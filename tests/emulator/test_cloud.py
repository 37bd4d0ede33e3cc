"""The emulated account as the rehearsal uses it: no command in it can reach a real one."""

import os
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

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


def ask(port: int, path: str, **headers: str) -> tuple[int, bytes]:
    """Asks a server of this machine as any program and web page can."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, b"{}", headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


STRANGERS = {
    "a web page": {"Origin": "http://attacker.example"},
    "a name that leads here": {"Host": "attacker.example:80"},
    "nobody's key": {"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-west-2/s3/"},
    "the account's number": {"Authorization": "AWS4-HMAC-SHA256 Credential=000000000000/1/x/s3/"},
    "no key": {"Authorization": ""},
}
"""What makes a request a stranger's, whatever else is right about it."""


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_stranger_on_this_machine_may_ask_for_nothing(cloud: Cloud, stranger: str) -> None:
    """Functions are processes: who may make one runs code as this user."""
    port = urlsplit(cloud.endpoint).port or 0
    key = cloud.environment["AWS_ACCESS_KEY_ID"]
    ours = {"Authorization": f"AWS4-HMAC-SHA256 Credential={key}/20260101/us-west-2/lambda/"}
    for path in ("/2015-03-31/functions", "/_ministack/reset", "/_rehearsal/inventory"):
        assert ask(port, path, **ours | STRANGERS[stranger]) == (403, b"")


def test_a_known_key_without_its_secret_is_refused(cloud: Cloud) -> None:
    import boto3
    from botocore.exceptions import ClientError

    keys = {name: cloud.environment[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_REGION")}
    thief = boto3.session.Session(keys["AWS_ACCESS_KEY_ID"], "guessed").client(
        "iam", region_name=keys["AWS_REGION"], endpoint_url=cloud.endpoint
    )
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        thief.list_users()
    assert cloud.client("sts").get_caller_identity()["Arn"].endswith(":user/administrator")
    # A known key does not open what only the rehearsal may ask, nor MiniStack's own paths.
    port = urlsplit(cloud.endpoint).port or 0
    signed = {"Authorization": f"AWS {keys['AWS_ACCESS_KEY_ID']}:00"}
    for path in ("/_rehearsal/inventory", "/_rehearsal/session", "/_ministack/reset"):
        assert ask(port, path, **signed)[0] == 403
