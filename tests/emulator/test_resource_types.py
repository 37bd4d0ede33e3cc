"""The types that the emulator adds, and its repairs: deployed by a template, looked at by boto3, deleted again.

Templates go straight to the emulator's CloudFormation: no cdk, so that these are quick.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jmespath
import pytest
import yaml
from botocore.exceptions import ClientError

from rehearsal.cloud import Cloud

pytestmark = pytest.mark.slow

Stack = Callable[..., dict[str, Any]]
STACKS = yaml.safe_load(Path(__file__).with_name("stacks.yaml").read_text())


@pytest.fixture(autouse=True)
def nothing_left(cloud: Cloud) -> Iterator[None]:
    """Every test of this file ends with the account as it began (`stack` deletes its stacks before this looks)."""
    before = cloud.inventory()
    yield
    assert [one for one in sorted(cloud.inventory() - before) if one.type != "snapshot"] == []


def told(cloud: Cloud, row: dict[str, Any], made: dict[str, Any]) -> None:
    for service, call, parameters, path, value in row.get("tells", ()):
        given, expected = (named(one, made) for one in (parameters, value))
        assert jmespath.search(path, getattr(cloud.client(service), call)(**given)) == expected, path


def named(value: Any, made: dict[str, Any]) -> Any:
    """With what the resources are called in place of `$Name`."""
    if isinstance(value, dict):
        return {key: named(one, made) for key, one in value.items()}
    if isinstance(value, list):
        return [named(one, made) for one in value]
    return made[value[1:]] if isinstance(value, str) and value.startswith("$") else value


def refs(resources: dict[str, Any]) -> dict[str, Any]:
    return {name: {"Ref": name} for name in resources}


@pytest.mark.parametrize("row", STACKS["made"], ids=lambda row: list(row["resources"])[-1])
def test_what_a_template_says_is_there(cloud: Cloud, stack: Stack, row: dict[str, Any]) -> None:
    told(cloud, row, stack(row["resources"], refs(row["resources"])))


@pytest.mark.parametrize("row", STACKS["refused"], ids=lambda row: row["refused"])
def test_what_aws_refuses_fails_the_stack(cloud: Cloud, stack: Stack, row: dict[str, Any]) -> None:
    made: dict[str, Any] = {}
    if "then" in row:
        made = stack(row["resources"], refs(row["resources"]))
    with pytest.raises((AssertionError, ClientError)) as refused:
        stack(row.get("then", row["resources"]), name=made.get("StackName"))
    assert row["refused"] in str(refused.value)
    told(cloud, row, made)


def test_a_volume_grows_in_place_and_leaves_a_snapshot(cloud: Cloud, stack: Stack) -> None:
    def volume(size: int) -> dict[str, Any]:
        given = {"AvailabilityZone": "us-west-2a", "Size": size, "Encrypted": True, "VolumeType": "gp3"}
        return {"State": {"Type": "AWS::EC2::Volume", "Properties": given, "DeletionPolicy": "Snapshot"}}

    made = stack(volume(20), refs(volume(20)))
    stack(volume(40), name=made["StackName"])
    cloud.client("cloudformation").delete_stack(StackName=made["StackName"])
    ec2 = cloud.client("ec2")
    assert ec2.describe_volumes()["Volumes"] == []
    [left] = ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]
    assert (left["VolumeId"], left["VolumeSize"]) == (made["State"], 40)


def why_not_deleted(cloud: Cloud, name: str) -> str:
    """The reasons of a delete that fails."""
    cloudformation = cloud.client("cloudformation")
    cloudformation.delete_stack(StackName=name)
    assert cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"] == "DELETE_FAILED"
    events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    return " ".join(event.get("ResourceStatusReason", "") for event in events)


def test_what_holds_data_is_not_deleted_with_its_stack(cloud: Cloud, stack: Stack) -> None:
    """As on AWS: otherwise a destroy that forgets to empty a bucket would look fine here."""
    s3, ecr = cloud.client("s3"), cloud.client("ecr")
    bucket = stack({"Thing": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "full"}}})["StackName"]
    images = stack({"Thing": {"Type": "AWS::ECR::Repository", "Properties": {"RepositoryName": "full"}}})["StackName"]
    s3.put_object(Bucket="full", Key="data", Body=b"1")
    ecr.put_image(repositoryName="full", imageManifest=json.dumps({"schemaVersion": 2}), imageTag="1")
    assert "BucketNotEmpty" in why_not_deleted(cloud, bucket)
    assert "not empty" in why_not_deleted(cloud, images)
    s3.delete_object(Bucket="full", Key="data")
    ecr.batch_delete_image(repositoryName="full", imageIds=[{"imageTag": "1"}])


def test_what_is_in_use_is_not_deleted(cloud: Cloud, stack: Stack) -> None:
    """A stack that loses the group its neighbour's nodes carry fails as on AWS, and goes on when the user is gone."""
    out = stack(STACKS["groups"], refs(STACKS["groups"]))
    role, subnets = {"Fn::GetAtt": ["Role", "Arn"]}, {"SubnetIds": [out["A"], out["B"]]}
    version = {"Id": {"Ref": "Template"}, "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]}}
    nodes = {"ClusterName": {"Ref": "Cluster"}, "NodegroupName": "workers", "NodeRole": role, "Subnets": [out["A"]]}
    properties: dict[str, dict[str, Any]] = {
        "AWS::EKS::Cluster": {"Name": "user", "RoleArn": role, "ResourcesVpcConfig": subnets},
        "AWS::EC2::LaunchTemplate": {"LaunchTemplateData": {"InstanceType": "m5.large", "SecurityGroupIds": [out["Client"]]}},
        "AWS::EKS::Nodegroup": nodes | {"LaunchTemplate": version},
    }
    names = ("Cluster", "Template", "Workers")
    user = {name: {"Type": kind, "Properties": given} for name, (kind, given) in zip(names, properties.items(), strict=True)}
    users = stack({"Role": STACKS["role"], **user})["StackName"]
    reasons = why_not_deleted(cloud, out["StackName"])
    assert f"security group {out['Client']} has a dependent object: node group user/workers" in reasons
    assert f"subnet {out['A']} has a dependent object: cluster user, node group user/workers" in reasons
    for name in (users, out["StackName"]):
        cloud.client("cloudformation").delete_stack(StackName=name)
