"""`upload` and `kubeconfig` against an emulated AWS account."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from aws_api import AwsApi
from commands import Done, Run
from job_controller import JobController
from paddle_node.volume.job_folder import JobFolder
from saved_pass import save_pass

from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.images.used_image import mark_used
from paddle_aws.rehearsal.cloud import Cloud

pytestmark = pytest.mark.slow

BUCKET = "paddle-storage-bucket"


@pytest.fixture
def bucket(aws: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The deployed bucket's client. Uploads are remembered in the test's own folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    client = aws.client("s3")
    if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": aws.region}
        )
    return client


def test_a_folder_goes_below_a_prefix(run: Run, bucket: Any, folder: Path) -> None:
    (folder / "corpus" / "deep").mkdir(parents=True)
    (folder / "corpus" / "one#1.tsv").write_text("1")
    (folder / "corpus" / "deep" / "two.tsv").write_text("2")
    (folder / "corpus" / ".hidden").write_text("3")
    done = run("upload", "corpus", "--to", f"s3://{BUCKET}/mine/")
    assert done.out == f"s3://{BUCKET}/mine/corpus/\n"
    keys = [
        item["Key"] for item in bucket.list_objects_v2(Bucket=BUCKET, Prefix="mine/")["Contents"]
    ]
    assert keys == ["mine/corpus/deep/two.tsv", "mine/corpus/one#1.tsv"]


def test_an_upload_that_failed_sends_what_the_bucket_lacks(
    run: Run, bucket: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "small").write_text("1")
    assert run("upload", "more").code == 0
    large = folder / "more" / "large"
    large.write_bytes(os.urandom(20 << 20))
    with monkeypatch.context() as cut:
        AwsApi(cut, upstream=True).refuse("s3", "UploadPart", "SlowDown")
        assert run("upload", "more").code == 3
    assert "Uploads" not in bucket.list_multipart_uploads(Bucket=BUCKET)
    assert "1 of 2 files sent (21.0 MB in all), 1 were there already" in run("upload", "more").err
    assert (
        bucket.get_object(Bucket=BUCKET, Key="sources/words/more/large")["Body"].read()
        == large.read_bytes()
    )
    # An empty --to names no other place.
    assert "0 of 2 files sent" in run("upload", "more", "--to", "").err
    large.write_bytes(large.read_bytes()[:-1] + b"b")
    assert "1 of 2 files sent" in run("upload", "more").err


def test_a_pass_goes_to_the_bucket_without_ssh(
    run: Run, bucket: Any, api: JobController, job: JobFolder, folder: Path
) -> None:
    """A pass that did not reach the bucket is not fetched twice, but another run's pass of equal
    size is a different one.
    """

    def download(to: str) -> Done:
        return run("results", "--download", "last", "--to", to)

    done = download("s3://nobody-has-this-bucket/models")
    assert done.code == 3 and "NoSuchBucket" in done.err
    assert any("/read?" in path and "part-0" in path for _, path in api.requests)
    api.requests.clear()
    done = download(f"s3://{BUCKET}/models")
    assert done.code == 0 and "3 of 3 files sent" in done.err
    assert not [path for _, path in api.requests if "/read?" in path and "part-0" in path]
    keys = {
        item["Key"] for item in bucket.list_objects_v2(Bucket=BUCKET, Prefix="models/")["Contents"]
    }
    assert keys == {
        f"models/pass-00002/{name}" for name in ("000/part-0", "program/train.py", "done")
    }
    assert (
        bucket.get_object(Bucket=BUCKET, Key="models/pass-00002/000/part-0")["Body"].read()
        == b"\2" * 100_000
    )
    assert not list((folder / "cache" / "paddle-aws").rglob("part-0"))

    assert download("s3://nobody-has-this-bucket/models").code == 3
    save_pass(
        job, 2, {"000/part-0": b"y" * 100_000, "program/train.py": b"print('hello')\n"}, attempt=2
    )
    assert download(f"s3://{BUCKET}/other").code == 0
    assert (
        bucket.get_object(Bucket=BUCKET, Key="other/pass-00002/000/part-0")["Body"].read()
        == b"y" * 100_000
    )


def test_a_wrong_upload_is_one_sentence(run: Run, folder: Path) -> None:
    assert run("upload", "nothing") == Done(
        2, "", "nothing does not exist: give a file or a folder\n"
    )
    sentence = "gs://x/y/job.yaml is not an S3 address: s3://bucket/key is allowed\n"
    assert run("upload", "job.yaml", "--to", "gs://x/y") == Done(2, "", sentence)
    (folder / "outputs.json").write_text("{}")
    done = run("upload", "job.yaml", "--job", "No Name")
    assert done.code == 2 and done.err.startswith("outputs.json: "), done.err


def test_submit_uploads_the_local_file_first_and_once(
    run: Run, bucket: Any, api: JobController, folder: Path
) -> None:
    (folder / "local.tsv").write_text("a\tb\n")
    (folder / "job.yaml").write_text("name: words\ntrainers: 1\ndata: {source: local.tsv}\n")
    assert "would be uploaded" in run("submit", "--dry-run").err
    done = run("submit", "--wait")
    assert done.code == 0, done.err
    assert f"local.tsv is uploaded to s3://{BUCKET}/sources/words/local.tsv" in done.err
    (data,) = api.of("data")
    variables = {
        v["name"]: v.get("value") for v in data["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    key = urlsplit(variables["DATA_SOURCE"]).path.lstrip("/")
    assert bucket.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"a\tb\n"
    done = run("upload", "local.tsv")
    assert (done.code, done.out) == (0, f"s3://{BUCKET}/sources/words/local.tsv\n")
    assert "local.tsv is already at s3://" in done.err
    (folder / "local.tsv").write_text("a\tc\n")
    assert "is uploaded to" in run("upload", "local.tsv").err


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kubectl_applies_the_same_manifests(run: Run, api: JobController, folder: Path) -> None:
    assert run("manifests").code == 0
    command = ["kubectl", "apply", "--server-side", "--validate=false", "-f", "dist"]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.stdout.count("serverside-applied") == 14 and api.all("jobs"), done.stderr


@pytest.fixture
def cluster(aws: Cloud, folder: Path) -> Path:
    """A cluster with the shipped settings' name. Returns a kubeconfig with somebody else's
    entry.
    """
    eks = aws.client("eks")
    if "paddle" not in eks.list_clusters()["clusters"]:
        trust = {
            "Version": "2012-10-17",
            "Statement": {
                "Effect": "Allow",
                "Principal": {"Service": "eks.amazonaws.com"},
                "Action": "sts:AssumeRole",
            },
        }
        made = aws.client("iam").create_role(
            RoleName="x", AssumeRolePolicyDocument=json.dumps(trust)
        )
        role = made["Role"]["Arn"]
        eks.create_cluster(
            name="paddle", roleArn=role, resourcesVpcConfig={"subnetIds": ["subnet-1", "subnet-2"]}
        )
    # The settings let the caller in, so no role is needed.
    caller = aws.client("sts").get_caller_identity()["Arn"]
    settings = (Path(__file__).parents[2] / "cluster.yaml").read_text()
    assert "administrators: []" in settings
    (folder / "cluster.yaml").write_text(
        settings.replace("administrators: []", f"administrators: [{caller}]")
    )
    other = {"name": "other", "cluster": {"server": "https://other.example"}}
    (folder / "config").write_text(
        yaml.safe_dump({"clusters": [other], "current-context": "other", "users": None})
    )
    return folder / "config"


def test_the_entry_of_a_cluster_that_is_there_is_merged(
    run: Run, cluster: Path, folder: Path
) -> None:
    for _ in range(2):
        done = run("kubeconfig", "--file", str(cluster), "--alias", "mine")
        assert done.code == 0, done.err
    kubeconfig = yaml.safe_load(cluster.read_text())
    arn = "arn:aws:eks:us-west-2:000000000000:cluster/paddle"
    assert [entry["name"] for entry in kubeconfig["clusters"]] == ["other", arn]
    assert kubeconfig["current-context"] == "mine"
    mark = {"name": "paddle-aws", "extension": {"provider": "aws"}}
    context = {"cluster": arn, "user": arn, "extensions": [mark]}
    assert kubeconfig["contexts"] == [{"name": "mine", "context": context}]
    assert "certificate-authority-data" in kubeconfig["clusters"][1]["cluster"]
    assert kubeconfig["users"][0]["user"]["exec"]["args"][2:6] == [
        "eks",
        "get-token",
        "--cluster-name",
        "paddle",
    ]
    assert "test" not in json.dumps(kubeconfig["users"])
    assert oct(cluster.stat().st_mode)[-3:] == "600"
    if shutil.which("kubectl"):
        command = ["kubectl", "config", "current-context", "--kubeconfig", str(cluster)]
        assert subprocess.run(command, text=True, capture_output=True).stdout == "mine\n"
    (folder / "cluster.yaml").write_text(
        (folder / "cluster.yaml").read_text().replace("name: paddle", "name: nobody", 1)
    )
    done = run("kubeconfig", "--file", str(cluster))
    assert done.code == 2 and done.err.startswith(
        "cluster nobody does not exist in us-west-2: deploy it, or correct"
    )
    assert yaml.safe_load(cluster.read_text()) == kubeconfig


def test_an_image_that_a_job_names_is_tagged_for_good(
    aws: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lifecycle policy of the repository spares the tag (tests/aws/templates.yaml)."""
    ecr, warnings = aws.client("ecr"), list[str]()
    ecr.create_repository(repositoryName="used/trainer", imageTagMutability="IMMUTABLE")
    manifest = json.dumps({"schemaVersion": 2, "layers": []})
    pushed = ecr.put_image(
        repositoryName="used/trainer", imageManifest=manifest, imageTag="0.1-0123456789ab"
    )["image"]
    digest = pushed["imageId"]["imageDigest"]
    image = f"000000000000.dkr.ecr.us-west-2.amazonaws.com/used/trainer@{digest}"
    for _ in range(2):
        mark_used(image, warnings.append)
    [details] = ecr.describe_images(repositoryName="used/trainer")["imageDetails"]
    assert sorted(details["imageTags"]) == ["0.1-0123456789ab", f"used-{digest[7:39]}"]
    with pytest.raises(BadInput, match="no longer in the repository: `make image push`"):
        mark_used(image.replace(digest, f"sha256:{'0' * 64}"), warnings.append)
    mark_used("theirs.example/trainer:1", warnings.append)
    assert not warnings
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/nonexistent")
    mark_used(image, warnings.append)
    assert "may expire while the job needs it: no AWS credentials" in warnings[0]
