"""A change of `retain` does nothing to a bucket's objects, in either direction, even if the change
fails. Only the end of the stack deletes them, and only with DESTROY.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import App, DefaultStackSynthesizer, RemovalPolicy, Stack
from aws_cdk import aws_ssm as ssm

from constructs_lib.storage.bucket import DataBucket
from paddle_aws.rehearsal.cloud import Cloud

from .conftest import Deploy, settled

pytestmark = pytest.mark.slow

KEPT, LOST = RemovalPolicy.RETAIN, RemovalPolicy.DESTROY


def template(policy: RemovalPolicy, fails: bool = False) -> dict[str, Any]:
    """Returns the template of a bucket with a removal policy. With `fails`, the last of the stack's
    resources is refused.
    """
    app = App()
    stack = Stack(
        app, "Theirs", synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False)
    )
    bucket = DataBucket(stack, "Bucket", removal_policy=policy)
    if fails:
        refused = ssm.CfnParameter(stack, "Refused", type="String", value="x", name="/taken")
        for construct in bucket.node.find_all():
            if construct is not refused:
                refused.node.add_dependency(construct)
    document: dict[str, Any] = app.synth().get_stack_by_name("Theirs").template
    return document


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("before", "after"), [(LOST, KEPT), (KEPT, LOST)])
def test_no_change_of_retain_deletes_an_object(
    cloud: Cloud, deploy: Deploy, before: RemovalPolicy, after: RemovalPolicy, fails: bool
) -> None:
    name = f"bucket-{before.name}-{fails}"
    s3, cloudformation = cloud.client("s3"), cloud.client("cloudformation")

    def buckets() -> list[str]:
        resources = cloudformation.describe_stack_resources(StackName=name)["StackResources"]
        return sorted(
            resource["PhysicalResourceId"]
            for resource in resources
            if resource["ResourceType"] == "AWS::S3::Bucket"
        )

    def write() -> None:
        for bucket in ours:
            for _ in range(3):
                s3.put_object(Bucket=bucket, Key="data", Body=b"x")

    def versions() -> list[int]:
        return [len(s3.list_object_versions(Bucket=bucket).get("Versions", [])) for bucket in ours]

    assert deploy(name, template(before))["StackStatus"] == "CREATE_COMPLETE"
    ours = buckets()
    write()
    if fails:
        cloud.client("ssm").put_parameter(
            Name="/taken", Value="theirs", Type="String", Overwrite=True
        )
    changed = deploy(name, template(after, fails))
    assert changed["StackStatus"] == ("UPDATE_ROLLBACK_COMPLETE" if fails else "UPDATE_COMPLETE"), (
        changed["reasons"]
    )
    assert buckets() == ours and versions() == [3] * len(ours)
    for bucket in ours:
        policy = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])
        denied = [
            statement
            for statement in policy["Statement"]
            if statement["Effect"] == "Deny" and statement["Action"] == "s3:PutObject"
        ]
        assert not denied, "who writes is refused"
    write()

    lasting = before if fails else after
    cloudformation.delete_stack(StackName=name)
    assert settled(cloudformation, name) == {}
    names = {item["Name"] for item in s3.list_buckets()["Buckets"]}
    assert [bucket in names for bucket in ours] == [lasting == KEPT] * len(ours)
    if lasting == KEPT:
        assert versions() == [6] * len(ours)
