"""What CloudFormation refuses of a whole stack: exports in use, a logical id of another type, a key for nobody."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError

from rehearsal.cloud import Cloud

pytestmark = pytest.mark.slow

SAME = "Update of resource type is not permitted. The new template modifies resource type of the following resources: [Thing]"
Deploy = Callable[..., dict[str, Any]]


def parameter(value: Any, kind: str = "AWS::SSM::Parameter") -> dict[str, Any]:
    return {"Type": kind, "Properties": {"Type": "String", "Value": value}}


def exporter(value: str = "a", name: str = "thing") -> dict[str, Any]:
    outputs = {"Out": {"Value": {"Fn::GetAtt": ["Thing", "Value"]}, "Export": {"Name": name}}}
    return {"Resources": {"Thing": parameter(value)}, "Outputs": outputs}


IMPORTER = {"Resources": {"Reader": parameter({"Fn::ImportValue": "thing"})}}


@pytest.fixture
def deploy(cloud: Cloud) -> Iterator[Deploy]:
    """Makes or changes a stack and returns it as it then is, its newest events first; deleted afterwards, the last one first."""
    api = cloud.client("cloudformation")
    made: list[str] = []

    def deployed(name: str, template: dict[str, Any]) -> dict[str, Any]:
        (api.update_stack if name in made else api.create_stack)(StackName=name, TemplateBody=json.dumps(template))
        made.append(name)
        [found] = api.describe_stacks(StackName=name)["Stacks"]
        events = api.describe_stack_events(StackName=name)["StackEvents"]
        return {**found, "reasons": [event.get("ResourceStatusReason", "") for event in events]}

    yield deployed
    for name in dict.fromkeys(reversed(made)):
        api.delete_stack(StackName=name)
        assert name not in [stack["StackName"] for stack in api.describe_stacks()["Stacks"]]


def exports(cloud: Cloud) -> dict[str, str]:
    return {each["Name"]: each["Value"] for each in cloud.client("cloudformation").list_exports()["Exports"]}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (exporter("b"), "Update canceled. Cannot update export thing as it is in use by reader."),
        (exporter(name="other"), "Delete canceled. Cannot delete export thing as it is in use by reader."),
        ({"Resources": {"Thing": parameter("a")}}, "Delete canceled. Cannot delete export thing as it is in use by reader."),
    ],
)
def test_an_export_in_use_stays(cloud: Cloud, deploy: Deploy, changed: dict[str, Any], sentence: str) -> None:
    deploy("source", exporter())
    deploy("reader", IMPORTER)
    refused = deploy("source", changed)
    assert refused["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE" and sentence in refused["reasons"]
    assert exports(cloud) == {"thing": "a"}
    [thing] = cloud.client("cloudformation").describe_stack_resources(StackName="source")["StackResources"]
    stored = cloud.client("ssm").get_parameter(Name=thing["PhysicalResourceId"])["Parameter"]["Value"]
    assert stored == "a", "rolled back"

    # What is exported besides may change, and all of it once nobody imports it.
    more = exporter()
    more["Outputs"]["More"] = {"Value": "x", "Export": {"Name": "more"}}
    assert deploy("source", more)["StackStatus"] == "UPDATE_COMPLETE"
    deploy("reader", {"Resources": {"Reader": parameter("a")}})
    assert deploy("source", changed)["StackStatus"] == "UPDATE_COMPLETE"
    wanted = changed.get("Outputs", {}).values()
    assert sorted(exports(cloud)) == [output["Export"]["Name"] for output in wanted]


def test_a_stack_whose_export_is_in_use_is_not_deleted(cloud: Cloud, deploy: Deploy) -> None:
    api = cloud.client("cloudformation")
    deploy("source", exporter())
    deploy("reader", IMPORTER)
    api.delete_stack(StackName="source")
    [kept] = api.describe_stacks(StackName="source")["Stacks"]
    assert kept["StackStatus"] == "CREATE_COMPLETE"
    newest = api.describe_stack_events(StackName="source")["StackEvents"][0]
    assert newest["ResourceStatusReason"] == "Delete canceled. Cannot delete export thing as it is in use by reader."
    api.delete_stack(StackName="reader")
    api.get_waiter("stack_delete_complete").wait(StackName="reader")
    api.delete_stack(StackName="source")
    api.get_waiter("stack_delete_complete").wait(StackName="source")


def test_a_logical_id_keeps_its_type(cloud: Cloud, deploy: Deploy) -> None:
    api = cloud.client("cloudformation")
    deploy("typed", {"Resources": {"Thing": parameter("a")}})
    body = json.dumps({"Resources": {"Thing": {"Type": "AWS::SNS::Topic"}}})
    with pytest.raises(ClientError) as refused:
        api.update_stack(StackName="typed", TemplateBody=body)
    assert refused.value.response["Error"] == {"Type": "Sender", "Code": "ValidationError", "Message": SAME}

    api.create_change_set(StackName="typed", ChangeSetName="change", TemplateBody=body)
    with pytest.raises(WaiterError):
        api.get_waiter("change_set_create_complete").wait(StackName="typed", ChangeSetName="change")
    described = api.describe_change_set(StackName="typed", ChangeSetName="change")
    assert (described["Status"], described["StatusReason"], described["Changes"]) == ("FAILED", SAME, [])
    with pytest.raises(ClientError):
        api.execute_change_set(StackName="typed", ChangeSetName="change")
    assert deploy("typed", {"Resources": {"Thing": parameter("b")}})["StackStatus"] == "UPDATE_COMPLETE"


def test_a_change_set_of_outputs_alone_is_one(cloud: Cloud, deploy: Deploy) -> None:
    """As when another stack needs one more export of this one."""
    api = cloud.client("cloudformation")
    deploy("source", {"Resources": {"Thing": parameter("a")}})
    for name, works in (("export", True), ("again", False)):
        api.create_change_set(StackName="source", ChangeSetName=name, TemplateBody=json.dumps(exporter()))
        described = api.describe_change_set(StackName="source", ChangeSetName=name)
        assert described["Status"] == ("CREATE_COMPLETE" if works else "FAILED")
        if works:
            api.execute_change_set(StackName="source", ChangeSetName=name)
            assert api.describe_stacks(StackName="source")["Stacks"][0]["StackStatus"] == "UPDATE_COMPLETE"
            assert exports(cloud) == {"thing": "a"}


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
        assert any(
            "Policy contains a statement with one or more invalid principals. (Service: Kms" in r for r in refused["reasons"]
        )
        refused = deploy(f"new-{who[-6:]}", key(account, {"AWS": [who]}))
        assert refused["StackStatus"] == "ROLLBACK_COMPLETE"
    cloud.client("iam").delete_role(RoleName="reader")
