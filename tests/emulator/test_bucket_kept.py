"""What a change of `retain` does to a bucket's objects: nothing, in both directions, also where the change fails. Only the end
of the stack deletes them, and only with DESTROY."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import App, DefaultStackSynthesizer, RemovalPolicy, Stack
from aws_cdk import aws_ssm as ssm

from constructs_lib.storage.bucket import DataBucket
from rehearsal.cloud import Cloud

from .conftest import settled

pytestmark = pytest.mark.slow
_numbers = itertools.count()

KEPT, LOST = RemovalPolicy.RETAIN, RemovalPolicy.DESTROY
Change = Callable[..., None]


def template(name: str, policy: RemovalPolicy, fails: bool) -> str:
    app = App()
    stack = Stack(app, name, synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False))
    bucket = DataBucket(stack, "Bucket", removal_policy=policy)
    if fails:
        refused = ssm.CfnParameter(stack, "Refused", type="String", value="x", name="/taken")
        for each in bucket.node.find_all():
            if each is not refused:
                refused.node.add_dependency(each)
    return json.dumps(app.synth().get_stack_by_name(name).template)


@pytest.fixture
def change(cloud: Cloud) -> tuple[str, Change]:
    """A stack's name, and what deploys it with a removal policy; with `fails` the last of its resources is refused."""
    name = f"bucket-{next(_numbers)}"
    api = cloud.client("cloudformation")

    def deploy(policy: RemovalPolicy, *, fails: bool = False, expect: str) -> None:
        given = {"StackName": name, "TemplateBody": template(name, policy, fails), "Capabilities": ["CAPABILITY_NAMED_IAM"]}
        exists = any(stack["StackName"] == name for stack in api.describe_stacks()["Stacks"])
        (api.update_stack if exists else api.create_stack)(**given)
        found = settled(api, name)
        events = api.describe_stack_events(StackName=name)["StackEvents"]
        assert found["StackStatus"] == expect, [event for event in events if event["ResourceStatus"].endswith("_FAILED")]

    return name, deploy


def buckets(cloud: Cloud, name: str) -> list[str]:
    found = cloud.client("cloudformation").describe_stack_resources(StackName=name)["StackResources"]
    return sorted(each["PhysicalResourceId"] for each in found if each["ResourceType"] == "AWS::S3::Bucket")


def versions(cloud: Cloud, bucket: str) -> int:
    return len(cloud.client("s3").list_object_versions(Bucket=bucket).get("Versions", []))


def write(cloud: Cloud, bucket: str) -> None:
    for _ in range(3):
        cloud.client("s3").put_object(Bucket=bucket, Key="data", Body=b"x")


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("before", "after"), [(LOST, KEPT), (KEPT, LOST)])
def test_no_change_of_retain_deletes_an_object(
    cloud: Cloud, change: tuple[str, Change], before: RemovalPolicy, after: RemovalPolicy, fails: bool
) -> None:
    name, deploy = change
    deploy(before, expect="CREATE_COMPLETE")
    ours = buckets(cloud, name)
    for bucket in ours:
        write(cloud, bucket)
    if fails:
        cloud.client("ssm").put_parameter(Name="/taken", Value="theirs", Type="String", Overwrite=True)
    deploy(after, fails=fails, expect="UPDATE_ROLLBACK_COMPLETE" if fails else "UPDATE_COMPLETE")
    assert buckets(cloud, name) == ours
    for bucket in ours:
        assert versions(cloud, bucket) == 3
        policy = json.loads(cloud.client("s3").get_bucket_policy(Bucket=bucket)["Policy"])
        denied = [each for each in policy["Statement"] if each["Effect"] == "Deny" and each["Action"] == "s3:PutObject"]
        assert not denied, "who writes is refused"
        write(cloud, bucket)

    lasting = before if fails else after
    cloud.client("cloudformation").delete_stack(StackName=name)
    assert settled(cloud.client("cloudformation"), name) == {}
    left: dict[str, Any] = cloud.client("s3").list_buckets()
    names = {each["Name"] for each in left["Buckets"]}
    assert [bucket in names for bucket in ours] == [lasting == KEPT] * len(ours)
    if lasting == KEPT:
        assert [versions(cloud, bucket) for bucket in ours] == [6] * len(ours)
