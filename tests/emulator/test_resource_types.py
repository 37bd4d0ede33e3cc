"""The types that the emulator adds, and its repairs: deployed by a template, looked at by boto3, deleted again.

Templates go straight to the emulator's CloudFormation: no cdk, so that these are quick.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jmespath
import pytest
import yaml
from botocore.exceptions import ClientError

from rehearsal.cloud import Cloud

from .conftest import Deploy

pytestmark = pytest.mark.slow

STACKS = yaml.safe_load(Path(__file__).with_name("stacks.yaml").read_text())


@pytest.fixture(autouse=True)
def nothing_left(cloud: Cloud) -> Iterator[None]:
    """Every test of this file ends with the account as it began (`deploy` deletes its stacks before this looks)."""
    before = cloud.inventory()
    yield
    assert sorted(cloud.inventory() - before) == []


def named(value: Any, made: dict[str, Any]) -> Any:
    """With what the resources are called in place of `$Name`."""
    if isinstance(value, dict):
        return {key: named(one, made) for key, one in value.items()}
    if isinstance(value, list):
        return [named(one, made) for one in value]
    return made[value[1:]] if isinstance(value, str) and value.startswith("$") else value


def of(resources: dict[str, Any]) -> dict[str, Any]:
    """A template that also tells what its resources are called."""
    return {"Resources": resources, "Outputs": {name: {"Value": {"Ref": name}} for name in resources}}


@pytest.mark.parametrize("row", STACKS["made"], ids=lambda row: list(row["resources"])[-1])
def test_what_a_template_says_is_there(cloud: Cloud, deploy: Deploy, row: dict[str, Any]) -> None:
    made = deploy("one", of(row["resources"]))
    assert made["StackStatus"] == "CREATE_COMPLETE", made["reasons"]
    for service, call, parameters, path, value in row["tells"]:
        given, expected = (named(one, made["outputs"]) for one in (parameters, value))
        assert jmespath.search(path, getattr(cloud.client(service), call)(**given)) == expected, path


@pytest.mark.parametrize("row", STACKS["refused"], ids=lambda row: row["refused"])
def test_what_aws_refuses_fails_the_stack(cloud: Cloud, deploy: Deploy, row: dict[str, Any]) -> None:
    try:
        refused = deploy("one", {"Resources": row["resources"]})
    except ClientError as error:
        refused = {"StackStatus": "ROLLBACK_COMPLETE", "reasons": [str(error)]}
    assert refused["StackStatus"].endswith("ROLLBACK_COMPLETE") and row["refused"] in " ".join(refused["reasons"])


def why_not_deleted(cloud: Cloud, name: str) -> str:
    """The reasons of a delete that fails."""
    cloudformation = cloud.client("cloudformation")
    cloudformation.delete_stack(StackName=name)
    assert cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"] == "DELETE_FAILED"
    events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    return " ".join(event.get("ResourceStatusReason", "") for event in events)


def test_what_holds_data_is_not_deleted_with_its_stack(cloud: Cloud, deploy: Deploy) -> None:
    """As on AWS: otherwise a destroy that forgets to empty a bucket would look fine here."""
    s3, ecr = cloud.client("s3"), cloud.client("ecr")
    deploy("bucket", of({"Thing": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "full"}}}))
    deploy("images", of({"Thing": {"Type": "AWS::ECR::Repository", "Properties": {"RepositoryName": "full"}}}))
    s3.put_object(Bucket="full", Key="data", Body=b"1")
    ecr.put_image(repositoryName="full", imageManifest=json.dumps({"schemaVersion": 2}), imageTag="1")
    assert "BucketNotEmpty" in why_not_deleted(cloud, "bucket")
    assert "not empty" in why_not_deleted(cloud, "images")
    s3.delete_object(Bucket="full", Key="data")
    ecr.batch_delete_image(repositoryName="full", imageIds=[{"imageTag": "1"}])
