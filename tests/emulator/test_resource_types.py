"""The emulator refuses what AWS refuses, in templates that are deployed and deleted again.
test_variants.py has what it makes.

Templates go straight to the emulator's CloudFormation, without cdk, so that these tests are quick.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError

from paddle_aws.rehearsal.cloud import Cloud

from .conftest import Deploy, settled

pytestmark = pytest.mark.slow

REFUSED = yaml.safe_load(Path(__file__).with_name("stacks.yaml").read_text())["refused"]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row["refused"])
def test_what_aws_refuses_fails_the_stack(deploy: Deploy, row: dict[str, Any]) -> None:
    try:
        refused = deploy("one", {"Resources": row["resources"]})
    except ClientError as error:
        refused = {"StackStatus": "ROLLBACK_COMPLETE", "reasons": [str(error)]}
    assert refused["StackStatus"].endswith("ROLLBACK_COMPLETE") and row["refused"] in " ".join(
        refused["reasons"]
    )


def why_not_deleted(cloud: Cloud, name: str) -> str:
    """Deletes a stack, which must fail. Returns the reasons."""
    cloudformation = cloud.client("cloudformation")
    cloudformation.delete_stack(StackName=name)
    assert (
        cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"]
        == "DELETE_FAILED"
    )
    events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    return " ".join(event.get("ResourceStatusReason", "") for event in events)


def test_what_holds_data_is_not_deleted_with_its_stack(cloud: Cloud, deploy: Deploy) -> None:
    """As on AWS: otherwise a destroy that forgets to empty a bucket would look fine here."""
    s3, ecr = cloud.client("s3"), cloud.client("ecr")
    deploy(
        "bucket",
        {"Resources": {"Thing": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "full"}}}},
    )
    deploy(
        "images",
        {
            "Resources": {
                "Thing": {"Type": "AWS::ECR::Repository", "Properties": {"RepositoryName": "full"}}
            }
        },
    )
    s3.put_object(Bucket="full", Key="data", Body=b"1")
    ecr.put_image(
        repositoryName="full", imageManifest=json.dumps({"schemaVersion": 2}), imageTag="1"
    )
    assert "BucketNotEmpty" in why_not_deleted(cloud, "bucket")
    assert "not empty" in why_not_deleted(cloud, "images")
    s3.delete_object(Bucket="full", Key="data")
    ecr.batch_delete_image(repositoryName="full", imageIds=[{"imageTag": "1"}])


@pytest.mark.parametrize("action", ["logs:CreateLogGroup", "logs:PutLogEvents"])
def test_a_log_group_comes_back_if_its_function_may_make_it(cloud: Cloud, action: str) -> None:
    """A function's last lines come after its delete. Ours may make no group, so a destroy leaves
    none.
    """
    who = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}}
    may = {"Effect": "Allow", "Action": action, "Resource": "*"}
    role = {
        "AssumeRolePolicyDocument": {"Statement": [{**who, "Action": "sts:AssumeRole"}]},
        "Policies": [{"PolicyName": "writes", "PolicyDocument": {"Statement": [may]}}],
    }
    function = {
        "Runtime": "python3.14",
        "Handler": "index.handler",
        "Code": {"ZipFile": "def handler(event, context): pass"},
        "Role": {"Fn::GetAtt": ["Role", "Arn"]},
        "LoggingConfig": {"LogGroup": {"Ref": "Logs"}},
    }
    resources = {
        "Role": {"Type": "AWS::IAM::Role", "Properties": role},
        "Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "late"}},
        "Function": {"Type": "AWS::Lambda::Function", "Properties": function},
    }
    api, logs = cloud.client("cloudformation"), cloud.client("logs")
    body = json.dumps({"Resources": resources})
    api.create_stack(StackName="late", TemplateBody=body, Capabilities=["CAPABILITY_IAM"])
    assert settled(api, "late")["StackStatus"] == "CREATE_COMPLETE"
    api.delete_stack(StackName="late")
    assert settled(api, "late") == {}
    left = logs.describe_log_groups(logGroupNamePrefix="late")["logGroups"]
    assert bool(left) == (action == "logs:CreateLogGroup")
    for group in left:
        logs.delete_log_group(logGroupName=group["logGroupName"])


def test_what_others_use_is_not_deleted_with_its_stack(cloud: Cloud, deploy: Deploy) -> None:
    """Members of a group, another's policy on a role, a security group that an interface has."""
    iam, ec2 = cloud.client("iam"), cloud.client("ec2")
    trust = {
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "ec2.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ]
    }
    vpc = {"CidrBlock": "172.20.0.0/16"}
    subnet = {"CidrBlock": "172.20.0.0/24", "VpcId": {"Ref": "Vpc"}}
    guard = {"GroupDescription": "guard", "VpcId": {"Ref": "Vpc"}}
    parts = {
        "people": {"Thing": ("AWS::IAM::Group", {"GroupName": "people"})},
        "role": {"Thing": ("AWS::IAM::Role", {"RoleName": "r", "AssumeRolePolicyDocument": trust})},
        "guard": {
            "Vpc": ("AWS::EC2::VPC", vpc),
            "Subnet": ("AWS::EC2::Subnet", subnet),
            "Thing": ("AWS::EC2::SecurityGroup", guard),
        },
    }
    ids = {}
    for name, resources in parts.items():
        template = {
            "Resources": {
                id: {"Type": kind, "Properties": properties}
                for id, (kind, properties) in resources.items()
            },
            "Outputs": {id: {"Value": {"Ref": id}} for id in resources},
        }
        stack = deploy(name, template)
        assert stack["StackStatus"] == "CREATE_COMPLETE", stack["reasons"]
        ids[name] = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    iam.create_user(UserName="ada")
    iam.add_user_to_group(GroupName="people", UserName="ada")
    policy = "arn:aws:iam::aws:policy/ReadOnlyAccess"
    iam.attach_role_policy(RoleName="r", PolicyArn=policy)
    interface = ec2.create_network_interface(
        SubnetId=ids["guard"]["Subnet"], Groups=[ids["guard"]["Thing"]]
    )["NetworkInterface"]["NetworkInterfaceId"]
    assert "must remove users from group first" in why_not_deleted(cloud, "people")
    assert "must detach all policies first" in why_not_deleted(cloud, "role")
    assert "has a dependent object" in why_not_deleted(cloud, "guard")
    iam.remove_user_from_group(GroupName="people", UserName="ada")
    iam.delete_user(UserName="ada")
    iam.detach_role_policy(RoleName="r", PolicyArn=policy)
    ec2.delete_network_interface(NetworkInterfaceId=interface)
