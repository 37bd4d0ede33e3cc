"""What CloudFormation refuses of a whole stack: exports in use, a logical id of another type, a key for nobody."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError

from rehearsal.cloud import Cloud

from .conftest import Deploy

pytestmark = pytest.mark.slow

SAME = "Update of resource type is not permitted. The new template modifies resource type of the following resources: [Thing]"
KEPT = "Delete canceled. Cannot delete export thing as it is in use by reader."


def parameter(value: Any) -> dict[str, Any]:
    return {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": value}}


def exporter(value: str) -> dict[str, Any]:
    outputs = {"Out": {"Value": {"Fn::GetAtt": ["Thing", "Value"]}, "Export": {"Name": "thing"}}}
    return {"Resources": {"Thing": parameter(value)}, "Outputs": outputs}


def test_an_export_in_use_stays(cloud: Cloud, deploy: Deploy) -> None:
    """(That more exports and fewer are deployed, by the real cdk: test_variants.py.)"""
    api, without = cloud.client("cloudformation"), {"Resources": {"Thing": parameter("a")}}
    deploy("source", exporter("a"))
    deploy("reader", {"Resources": {"Reader": parameter({"Fn::ImportValue": "thing"})}})
    for changed, sentence in (
        (exporter("b"), "Update canceled. Cannot update export thing as it is in use by reader."),
        (without, KEPT),
    ):
        refused = deploy("source", changed)
        assert refused["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE" and sentence in refused["reasons"]
        assert [(each["Name"], each["Value"]) for each in api.list_exports()["Exports"]] == [("thing", "a")]
        [thing] = api.describe_stack_resources(StackName="source")["StackResources"]
        stored = cloud.client("ssm").get_parameter(Name=thing["PhysicalResourceId"])["Parameter"]["Value"]
        assert stored == "a", "rolled back"
    api.delete_stack(StackName="source")
    [kept] = api.describe_stacks(StackName="source")["Stacks"]
    assert kept["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert api.describe_stack_events(StackName="source")["StackEvents"][0]["ResourceStatusReason"] == KEPT
    deploy("reader", without)
    assert deploy("source", without)["StackStatus"] == "UPDATE_COMPLETE"


def test_a_logical_id_keeps_its_type(cloud: Cloud, deploy: Deploy) -> None:
    """In an update, and in a change set, which cdk makes."""
    api = cloud.client("cloudformation")
    deploy("typed", {"Resources": {"Thing": parameter("a")}})
    given = {"StackName": "typed", "TemplateBody": json.dumps({"Resources": {"Thing": {"Type": "AWS::SNS::Topic"}}})}
    with pytest.raises(ClientError) as refused:
        api.update_stack(**given)
    assert refused.value.response["Error"] == {"Type": "Sender", "Code": "ValidationError", "Message": SAME}

    api.create_change_set(ChangeSetName="change", **given)
    with pytest.raises(WaiterError):
        api.get_waiter("change_set_create_complete").wait(StackName="typed", ChangeSetName="change")
    described = api.describe_change_set(StackName="typed", ChangeSetName="change")
    assert (described["Status"], described["StatusReason"], described["Changes"]) == ("FAILED", SAME, [])


def key(*principals: Any) -> dict[str, Any]:
    statements = [{"Effect": "Allow", "Principal": who, "Action": "kms:*", "Resource": "*"} for who in principals]
    return {"Resources": {"Key": {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": {"Statement": statements}}}}}


def test_a_keys_policy_names_only_who_exists(cloud: Cloud, deploy: Deploy) -> None:
    role = cloud.client("iam").create_role(RoleName="reader", Path="/team/", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    account = {"AWS": "arn:aws:iam::000000000000:root"}
    known = [account, {"AWS": [role, "arn:aws:iam::999999999999:role/theirs"]}, {"Service": "logs.amazonaws.com"}, "*"]
    assert deploy("key", key(*known))["StackStatus"] == "CREATE_COMPLETE"
    for who in ("arn:aws:iam::000000000000:role/reader", "arn:aws:iam::000000000000:user/nobody"):
        refused = deploy("key", key(account, {"AWS": who}))
        assert refused["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
        sentence = "Policy contains a statement with one or more invalid principals. (Service: Kms"
        assert sentence in " ".join(refused["reasons"])
        assert deploy(f"new-{who[-6:]}", key(account, {"AWS": [who]}))["StackStatus"] == "ROLLBACK_COMPLETE"
    cloud.client("iam").delete_role(RoleName="reader")
