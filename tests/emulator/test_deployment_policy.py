"""The deployment policy is enough, and each of its statements is needed: shown with IAM enforced.

The emulator asks the role that CloudFormation executes with for what AWS's own resource handlers would call
(parts/permissions.py), and MiniStack asks cdk's own roles for every call that cdk makes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
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


def policies(config: Path) -> dict[str, dict[str, Any]]:
    """The files that the command writes."""
    out = config.parent / "policies"
    command = [sys.executable, "-m", "stacks.deployment_policy", "--config", config, "--out", out]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    return {file.stem: json.loads(file.read_text()) for file in sorted(out.glob("*.json"))}


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


class Templates:
    """Synthesized stacks, deployed by boto3 with one role: what cdk does, without its four seconds a time."""

    ROLE = "executes"

    def __init__(self, cloud: Cloud, assembly: Path, administrators: dict[str, dict[str, Any]]) -> None:
        """`administrators`: policies that are there before, by their names."""
        self.cloudformation, self.iam = cloud.client("cloudformation"), cloud.client("iam")
        manifest = json.loads((assembly / "manifest.json").read_text())["artifacts"]
        # In the order of the app, which is that of their dependencies.
        self.stacks = {
            # Without its white space, which CloudFormation counts: 51,200 characters at most.
            name: json.dumps(json.loads((assembly / artifact["properties"]["templateFile"]).read_text()))
            for name, artifact in manifest.items()
            if artifact["type"] == "aws:cloudformation:stack"
        }
        self.role = self.iam.create_role(RoleName=self.ROLE, AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
        for name in sorted(set(re.findall("/cdk-bootstrap/[a-z0-9]+/version", json.dumps(self.stacks)))):
            cloud.client("ssm").put_parameter(Name=name, Value="30", Type="String")
        for name, document in administrators.items():
            self.iam.create_policy(PolicyName=name, Path="/deployment/", PolicyDocument=json.dumps(document))

    def allow(self, statements: list[dict[str, Any]]) -> None:
        document = {"Version": "2012-10-17", "Statement": statements}
        self.iam.put_role_policy(RoleName=self.ROLE, PolicyName="allowed", PolicyDocument=json.dumps(document))

    def _settled(self, stack: str) -> dict[str, Any]:
        """As it is when its operation has ended: a Lambda function's part goes on behind the call."""
        for _ in range(1200):
            found: dict[str, Any] = self.cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
            if not found["StackStatus"].endswith("_IN_PROGRESS"):
                return found
            time.sleep(0.1)
        raise AssertionError(f"{stack} is still {found['StackStatus']}")

    def _failures(self, stack: str, good: str) -> list[str]:
        found = self._settled(stack)
        if found["StackStatus"] == good:
            return []
        events = self.cloudformation.describe_stack_events(StackName=found["StackId"])["StackEvents"]
        return [event.get("ResourceStatusReason", "") for event in events if event["ResourceStatus"].endswith("_FAILED")]

    def refusals(self) -> list[str]:
        """What is refused while all stacks are made and unmade; stops at the first stack that fails."""
        made = []
        for name, template in self.stacks.items():
            given = {"StackName": name, "TemplateBody": template, "RoleARN": self.role, "Capabilities": ["CAPABILITY_NAMED_IAM"]}
            try:
                made.append(self.cloudformation.create_stack(**given)["StackId"])
            except self.cloudformation.exceptions.ClientError as error:
                # Before any resource: a parameter of the template.
                return [str(error)]
            if failures := self._failures(name, "CREATE_COMPLETE"):
                return failures
        for stack in reversed(made):
            self.cloudformation.delete_stack(StackName=stack)
            if failures := self._failures(stack, "DELETE_COMPLETE"):
                return failures
        return []

    def clear(self) -> None:
        for name in reversed(self.stacks):
            self.cloudformation.delete_stack(StackName=name)
            with suppress(self.cloudformation.exceptions.ClientError):
                self._settled(name)


def eks() -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load((VARIANTS / "self-managed.yaml").read_text())
    settings["deployer"] = "restricted"
    settings["network"] = {"interface_endpoints": True, "flow_log_days": 7}
    settings["nodes"]["managed"] = {"placement_group": True, "availability_zones": ["us-west-2a"]}
    return settings


def own() -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load((VARIANTS / "self-managed-cluster.yaml").read_text())
    return settings | {"deployer": "restricted"}


# The statements that a self-managed cluster shares with EKS are shown once, with EKS: each costs a life of all stacks.
OF_ITS_OWN = ("KeyPair", "Secretsmanager", "Ssm")


@pytest.mark.parametrize(("everything", "shown"), [(eks, ()), (own, OF_ITS_OWN)])
def test_each_statement_is_needed(tmp_path: Path, everything: Callable[[], dict[str, Any]], shown: tuple[str, ...]) -> None:
    """Without any one of them the life of a cluster that uses everything fails, by the name of an action that it allows."""
    settings = everything()
    config = tmp_path / "cluster.yaml"
    config.write_text(yaml.safe_dump(settings))
    files = policies(config)
    deploys = [name for name in files if "-deploy-" in name]
    statements = [statement for name in deploys for statement in files.pop(name)["Statement"]]
    with Cloud(project=PROJECT, state=tmp_path / "state", **ENFORCED) as cloud:
        cloud.cdk("synth", "--quiet", config=config)
        templates = Templates(cloud, tmp_path / "state" / "cdk.out", files)
        before = cloud.inventory()
        templates.allow(statements)
        assert templates.refusals() == []
        assert sorted(cloud.inventory() - before) == []
        for left_out in (statement for statement in statements if not shown or statement["Sid"] in shown):
            templates.allow([statement for statement in statements if statement is not left_out])
            refused = templates.refusals()
            named = [f"not authorized to perform: {action} " for action in left_out["Action"]]
            assert any(name in reason for name in named for reason in refused), (left_out["Sid"], refused)
            templates.allow(statements)
            templates.clear()
            assert sorted(cloud.inventory() - before) == [], left_out["Sid"]
