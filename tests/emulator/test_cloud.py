"""The emulated account as the rehearsal uses it: the real cdk command line, the real app, and nothing left of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rehearsal.cloud import Cloud, CloudError

PROJECT = Path(__file__).parents[2]
CONFIG = PROJECT / "cluster.yaml"


@pytest.mark.slow
def test_the_app_comes_and_goes(tmp_path: Path) -> None:
    """Deployed, deployed again without a change, destroyed with data lying in it; the account is as it was, but for an orphan."""
    lines: list[str] = []
    outputs_file = tmp_path / "outputs.json"
    with Cloud(project=PROJECT, state=tmp_path / "state", report=lines.append) as cloud:
        cloud.bootstrap()
        before = cloud.inventory()
        cloud.deploy(CONFIG, outputs_file)
        outputs = {key: value for stack in json.loads(outputs_file.read_text()).values() for key, value in stack.items()}
        assert {"VpcId", "BucketName", "FileSystemId", "AccessPointId", "RepositoryUri", "ClusterName"} <= outputs.keys()
        cluster = cloud.client("eks").describe_cluster(name=outputs["ClusterName"])["cluster"]
        assert cluster["resourcesVpcConfig"]["vpcId"] == outputs["VpcId"]

        deployed = cloud.inventory()
        del lines[:]
        cloud.deploy(CONFIG, outputs_file)
        assert sum("(no changes)" in line for line in lines) == 5
        assert cloud.inventory() == deployed

        s3 = cloud.client("s3")
        for body in (b"old", b"new"):
            s3.put_object(Bucket=outputs["BucketName"], Key="data", Body=body)
        s3.delete_object(Bucket=outputs["BucketName"], Key="data")
        with pytest.raises(s3.exceptions.ClientError, match="BucketNotEmpty"):
            s3.delete_bucket(Bucket=outputs["BucketName"])
        repository = outputs["RepositoryUri"].partition("/")[2]
        cloud.client("ecr").put_image(repositoryName=repository, imageManifest=json.dumps({"schemaVersion": 2}), imageTag="1")
        cloud.client("ec2").create_security_group(GroupName="orphan", Description="made by hand")

        cloud.destroy(CONFIG)
        left = sorted(cloud.inventory() - before)
    assert [(resource.service, resource.type) for resource in left] == [("ec2", "security group")]


@pytest.mark.slow
def test_a_failing_command_says_why(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(CONFIG.read_text() + "\nno_such_setting: 1\n")
    with Cloud(project=PROJECT, state=tmp_path / "state") as cloud, pytest.raises(CloudError, match="no_such_setting"):
        cloud.deploy(wrong, tmp_path / "outputs.json")


def test_nothing_of_the_callers_account_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "CDK_DEFAULT_ACCOUNT"):
        monkeypatch.setenv(name, "the caller's own")
    environ = Cloud(project=PROJECT, state=tmp_path)._environ()
    assert "the caller's own" not in environ.values()
    assert environ["PATH"].split(os.pathsep)[0] == str(PROJECT / ".venv" / "bin")


def test_a_missing_emulator_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CloudError, match="run `make rehearse`, which makes it"), Cloud(project=tmp_path, state=tmp_path):
        pass
