"""What the roles of a self-managed cluster may do, asked of the account itself with IAM enforced: machines and people.

The policies are those that the stacks deploy; each is tried through a role of the same policies that a test may take.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from rehearsal.cloud import Cloud

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
ENFORCED: dict[str, Any] = {
    "enforce": True,
    "parts": [Path(__file__).parent / "parts" / "permissions.py"],
    "extra": {"CDK_VALIDATION": "false"},
}
VARIANT = PROJECT / "tests" / "aws" / "variants" / "self-managed-cluster.yaml"
SNAPSHOT = "cluster/snapshots/etcd-1"


class Account:
    """The deployed cluster, and clients with the rights of one of its roles."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud, self.iam = cloud, cloud.client("iam")
        cloudformation = cloud.client("cloudformation")
        cloud.cdk("synth", "--quiet", config=VARIANT)
        assembly = cloud.state / "cdk.out"
        cloud.client("ssm").put_parameter(Name="/cdk-bootstrap/tutorial/version", Value="30", Type="String")
        self.outputs: dict[str, str] = {}
        for name, artifact in json.loads((assembly / "manifest.json").read_text())["artifacts"].items():
            if artifact["type"] == "aws:cloudformation:stack":
                # Without its white space, which CloudFormation counts: 51,200 characters at most.
                body = json.dumps(json.loads((assembly / artifact["properties"]["templateFile"]).read_text()))
                cloudformation.create_stack(StackName=name, TemplateBody=body, Capabilities=["CAPABILITY_NAMED_IAM"])
                [stack] = cloudformation.describe_stacks(StackName=name)["Stacks"]
                assert stack["StackStatus"] == "CREATE_COMPLETE", name
                self.outputs |= {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}
        s3 = cloud.client("s3")
        for key in (SNAPSHOT, "sources/data.txt"):
            s3.put_object(Bucket=self.outputs["BucketName"], Key=key, Body=b"1")

    def as_role(self, word: str) -> dict[str, Any]:
        """Clients of the role whose policies' name has `word`."""
        trust = {
            "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}],
            "Version": "2012-10-17",
        }
        role = self.iam.create_role(RoleName=f"as-{word}", AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
        policies = [one["Arn"] for one in self.iam.list_policies(Scope="Local")["Policies"] if word in one["PolicyName"]]
        assert policies, word
        for arn in policies:
            self.iam.attach_role_policy(RoleName=f"as-{word}", PolicyArn=arn)
        given = self.cloud.client("sts").assume_role(RoleArn=role, RoleSessionName="machine")["Credentials"]
        session = boto3.session.Session(
            aws_access_key_id=given["AccessKeyId"],
            aws_secret_access_key=given["SecretAccessKey"],
            aws_session_token=given["SessionToken"],
            region_name=self.cloud.region,
        )
        return {service: session.client(service, endpoint_url=self.cloud.endpoint) for service in ("s3", "secretsmanager", "ec2")}


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    state = tmp_path_factory.mktemp("cloud")
    with Cloud(project=PROJECT, state=state, **ENFORCED) as cloud:
        yield Account(cloud)


def refused(call: Any, **given: Any) -> bool:
    """Whether IAM says no; any other answer, an empty secret's too, is a yes."""
    try:
        call(**given)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        assert code in ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "ResourceNotFoundException"), code
        return bool(code != "ResourceNotFoundException")
    return False


def readable(account: Account, clients: dict[str, Any]) -> set[str]:
    """The cluster's secrets and the bucket's objects that these clients may read."""
    names = ["server-token", "node-token", "ca-hash", *(f"kubeconfig/{team}" for team in ("operator", "trainer", "reader"))]
    secrets = {name for name in names if not refused(clients["secretsmanager"].get_secret_value, SecretId=f"tutorial/{name}")}
    bucket = account.outputs["BucketName"]
    objects = {key for key in (SNAPSHOT, "sources/data.txt") if not refused(clients["s3"].get_object, Bucket=bucket, Key=key)}
    return secrets | objects


def test_a_node_reads_its_token_the_ca_hash_and_training_data(account: Account) -> None:
    clients = account.as_role("Joining")
    assert readable(account, clients) == {"node-token", "ca-hash", "sources/data.txt"}
    assert refused(clients["secretsmanager"].put_secret_value, SecretId="tutorial/ca-hash", SecretString="b" * 64)
    assert refused(clients["s3"].put_object, Bucket=account.outputs["BucketName"], Key="sources/mine", Body=b"")


def test_the_control_plane_writes_what_others_need_of_it(account: Account) -> None:
    clients = account.as_role("ClusterControlPlane")
    assert "server-token" in readable(account, clients)
    assert "sources/data.txt" not in readable(account, clients)
    for name in ("ca-hash", "kubeconfig/operator", "kubeconfig/trainer", "kubeconfig/reader"):
        clients["secretsmanager"].put_secret_value(SecretId=f"tutorial/{name}", SecretString="x")
    assert refused(clients["secretsmanager"].put_secret_value, SecretId="tutorial/server-token", SecretString="x")
    clients["s3"].put_object(Bucket=account.outputs["BucketName"], Key="cluster/snapshots/etcd-2", Body=b"2")
    assert refused(clients["s3"].put_object, Bucket=account.outputs["BucketName"], Key="sources/mine", Body=b"")
    [volume] = clients["ec2"].describe_volumes()["Volumes"]
    assert refused(clients["ec2"].delete_volume, VolumeId=volume["VolumeId"])


@pytest.mark.parametrize(
    ("policy", "may_read"),
    [
        ("OperatorPolicy", {"kubeconfig/operator", "sources/data.txt"}),
        ("TrainerPolicy", {"kubeconfig/trainer", "sources/data.txt"}),
        ("ReaderPolicy", {"kubeconfig/reader", "sources/data.txt"}),
    ],
)
def test_each_team_reads_its_own_kubeconfig_and_no_snapshot(account: Account, policy: str, may_read: set[str]) -> None:
    assert readable(account, account.as_role(policy)) == may_read
