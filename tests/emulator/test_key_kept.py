"""A key outlives what it encrypts: its deletion is scheduled as its stack goes, if nothing needs it
any more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, DefaultStackSynthesizer, RemovalPolicies, RemovalPolicy, Stack

from constructs_lib.storage import unused_key_handler
from constructs_lib.storage.key import EncryptionKey
from paddle_aws.operations.account.aws import client
from paddle_aws.rehearsal.cloud import Cloud

from .conftest import Deploy, settled

pytestmark = pytest.mark.slow


def template(kept: bool = False) -> dict[str, Any]:
    """Returns the template of a key that is to go with its stack. With `kept`, an aspect of the app
    says that keys stay.
    """
    app = App()
    stack = Stack(
        app, "Theirs", synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False)
    )
    EncryptionKey(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
    if kept:
        RemovalPolicies.of(app).retain(apply_to_resource_types=["AWS::KMS::Key"])
    document: dict[str, Any] = app.synth().get_stack_by_name("Theirs").template
    return document


def make_cluster_role(cloud: Cloud) -> str:
    trust = {
        "Version": "2012-10-17",
        "Statement": {
            "Effect": "Allow",
            "Principal": {"Service": "eks.amazonaws.com"},
            "Action": "sts:AssumeRole",
        },
    }
    role = cloud.client("iam").create_role(
        RoleName="kept-cluster", AssumeRolePolicyDocument=json.dumps(trust)
    )
    return role["Role"]["Arn"]


def arn_of_key(cloud: Cloud, stack: str) -> str:
    """Returns the ARN of a stack's key."""
    described = cloud.client("cloudformation").describe_stack_resources(StackName=stack)
    [id] = [
        part["PhysicalResourceId"]
        for part in described["StackResources"]
        if part["ResourceType"] == "AWS::KMS::Key"
    ]
    arn: str = cloud.client("kms").describe_key(KeyId=id)["KeyMetadata"]["Arn"]
    return arn


@pytest.mark.parametrize(
    ("what", "state"),
    [("nothing", "PendingDeletion"), ("an aspect", "Enabled"), ("file system", "Enabled")],
)
def test_a_key_goes_with_its_stack_only_if_it_encrypts_nothing_that_stays(
    cloud: Cloud, deploy: Deploy, what: str, state: str
) -> None:
    name = f"key-{what.replace(' ', '-')}"
    api, kms = cloud.client("cloudformation"), cloud.client("kms")
    stack = deploy(name, template(kept=what == "an aspect"))
    assert stack["StackStatus"] == "CREATE_COMPLETE", stack["reasons"]
    key = arn_of_key(cloud, name)
    if what == "file system":
        cloud.client("efs").create_file_system(CreationToken=name, Encrypted=True, KmsKeyId=key)
    api.delete_stack(StackName=name)
    assert settled(api, name) == {}
    assert kms.describe_key(KeyId=key)["KeyMetadata"]["KeyState"] == state


def test_each_kind_of_what_a_key_encrypts_is_noticed(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not shown: volumes, snapshots and secrets, whose keys the emulator does not list."""
    key = cloud.client("kms").create_key()["KeyMetadata"]["Arn"]
    s3 = cloud.client("s3")
    s3.create_bucket(
        Bucket="kept-bucket", CreateBucketConfiguration={"LocationConstraint": "us-west-2"}
    )
    s3.create_bucket(Bucket="plain", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    by_default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    s3.put_bucket_encryption(
        Bucket="kept-bucket",
        ServerSideEncryptionConfiguration={
            "Rules": [{"ApplyServerSideEncryptionByDefault": by_default}]
        },
    )
    cloud.client("ecr").create_repository(
        repositoryName="kept-repository",
        encryptionConfiguration={"encryptionType": "KMS", "kmsKey": key},
    )
    cloud.client("backup").create_backup_vault(BackupVaultName="kept-vault", EncryptionKeyArn=key)
    cloud.client("eks").create_cluster(
        name="kept-cluster",
        roleArn=make_cluster_role(cloud),
        resourcesVpcConfig={"subnetIds": []},
        encryptionConfig=[{"resources": ["secrets"], "provider": {"keyArn": key}}],
    )
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    for make_client in (client, unused_key_handler.client):
        kept = {name for name, by in unused_key_handler.encrypted(make_client) if by == key}
        assert kept == {f"kept-{what}" for what in ("bucket", "cluster", "repository", "vault")}


def test_the_function_fits_into_a_template() -> None:
    """Code in a template has 4,096 characters at most; the emulator takes more."""
    for handler in Path(unused_key_handler.__file__).parent.glob("*_handler.py"):
        assert len(handler.read_text()) <= 4096, handler.name


def test_no_update_ends_a_key(cloud: Cloud, deploy: Deploy) -> None:
    """A key that leaves the template, for `key.existing_arn` perhaps, still encrypts what was
    replaced.
    """
    kms = cloud.client("kms")
    assert deploy("key-leaves", template())["StackStatus"] == "CREATE_COMPLETE"
    [key] = [
        part["PhysicalResourceId"]
        for part in cloud.client("cloudformation").describe_stack_resources(StackName="key-leaves")[
            "StackResources"
        ]
        if part["ResourceType"] == "AWS::KMS::Key"
    ]
    topic = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}
    assert deploy("key-leaves", topic)["StackStatus"] == "UPDATE_COMPLETE"
    assert kms.describe_key(KeyId=key)["KeyMetadata"]["KeyState"] == "Enabled"
