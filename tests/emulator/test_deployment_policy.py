"""The deployment policy is enough for a cluster's whole life: shown with IAM enforced.

The emulator asks the role that CloudFormation executes with for what AWS's own resource handlers would call
(parts/permissions.py), and MiniStack asks cdk's own roles for every call that cdk makes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rehearsal.cloud import Cloud

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
ENFORCED: dict[str, Any] = {
    "enforce": True,
    "parts": [Path(__file__).parent / "parts" / "permissions.py"],
    "extra": {"CDK_VALIDATION": "false"},
}
VARIANTS = PROJECT / "tests" / "aws" / "variants"


TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "cloudformation.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}


@pytest.mark.parametrize("file", [PROJECT / "cluster.yaml", VARIANTS / "self-managed-cluster.yaml"], ids=["eks", "self-managed"])
def test_the_whole_life_of_a_cluster(tmp_path: Path, file: Path) -> None:
    """`paddle-aws bootstrap` and the real cdk: deploy, restrict the deployer, change, destroy with data in the bucket."""
    settings = yaml.safe_load(file.read_text())
    restricted = {"deployer": "restricted"}
    config, outputs_file = tmp_path / "cluster.yaml", tmp_path / "outputs.json"
    with Cloud(project=PROJECT, state=tmp_path / "state", **ENFORCED) as cloud:
        # The policies are an administrator's, and there before and after.
        for bootstrapped in (settings | restricted, settings):
            config.write_text(yaml.safe_dump(bootstrapped))
            cloud.bootstrap(config)
        before = cloud.inventory()
        cloud.deploy(config, outputs_file)
        settings |= restricted
        config.write_text(yaml.safe_dump(settings))
        cloud.bootstrap(config)
        cloud.deploy(config, outputs_file)
        iam = cloud.client("iam")
        for role in iam.list_roles()["Roles"]:
            if role["RoleName"].startswith(f"{settings['name']}-"):
                bounded = iam.get_role(RoleName=role["RoleName"])["Role"]["PermissionsBoundary"]["PermissionsBoundaryArn"]
                assert bounded.endswith(f":policy/deployment/{settings['name']}-boundary")
        settings["nodes"]["workers"]["desired"] = 4
        settings["file_system"] = {"throughput": "bursting"}
        # A change of every tag.
        settings["owner"] = "somebody-else"
        config.write_text(yaml.safe_dump(settings))
        cloud.deploy(config, outputs_file)
        [bucket] = [stack["BucketName"] for stack in json.loads(outputs_file.read_text()).values() if "BucketName" in stack]
        cloud.client("s3").put_object(Bucket=bucket, Key="data", Body=b"1")
        cloud.destroy(config)
        assert sorted(cloud.inventory() - before) == []


def test_what_the_role_may_not_do_fails_by_name(tmp_path: Path) -> None:
    """A role that may make a VPC and not tag it."""
    vpc = {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16", "Tags": [{"Key": "Name", "Value": "x"}]}}
    allowed = {"Effect": "Allow", "Action": ["ec2:CreateVpc", "ec2:DeleteVpc", "ec2:Describe*"], "Resource": "*"}
    with Cloud(project=PROJECT, state=tmp_path, **ENFORCED) as cloud:
        iam, cloudformation = cloud.client("iam"), cloud.client("cloudformation")
        role = iam.create_role(RoleName="executes", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
        document = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        iam.put_role_policy(RoleName="executes", PolicyName="allowed", PolicyDocument=document)
        stack = cloudformation.create_stack(StackName="one", TemplateBody=json.dumps({"Resources": {"Vpc": vpc}}), RoleARN=role)[
            "StackId"
        ]
        assert cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"] == "ROLLBACK_COMPLETE"
        events = cloudformation.describe_stack_events(StackName=stack)["StackEvents"]
        reasons = " ".join(event.get("ResourceStatusReason", "") for event in events)
        assert "executes/AWSCloudFormation is not authorized to perform: ec2:CreateTags on resource: arn:aws:ec2:" in reasons
