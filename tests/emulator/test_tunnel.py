"""The way to a private endpoint, really deployed: what leads there, what changes with the endpoint, and that nothing is left."""

from __future__ import annotations

import json

import pytest
from aws_cdk import App, DefaultStackSynthesizer, Stack
from aws_cdk import aws_ec2 as ec2

from constructs_lib.network.endpoint_tunnel import EndpointTunnel
from operations.account.tunnel import machines
from rehearsal.cloud import Cloud

from .conftest import settled

pytestmark = pytest.mark.slow


def template(host: str) -> str:
    app = App()
    stack = Stack(app, "Theirs", synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False))
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2)
    EndpointTunnel(stack, "Tunnel", vpc=vpc, host=host, document_name="theirs")
    return json.dumps(app.synth().get_stack_by_name("Theirs").template)


def test_it_comes_back_follows_its_endpoint_and_goes(cloud: Cloud) -> None:
    before, api = cloud.inventory(), cloud.client("cloudformation")
    given = {"StackName": "Theirs", "Capabilities": ["CAPABILITY_NAMED_IAM"]}
    api.create_stack(TemplateBody=template("one.example"), **given)
    assert settled(api, "Theirs")["StackStatus"] == "CREATE_COMPLETE", api.describe_stack_events(StackName="Theirs")[
        "StackEvents"
    ]
    [first] = machines(cloud.client("ec2"), "theirs")
    cloud.client("ec2").terminate_instances(InstanceIds=[first])
    [second] = machines(cloud.client("ec2"), "theirs")
    assert second != first
    [machine] = cloud.client("ec2").describe_instances(InstanceIds=[second])["Reservations"][0]["Instances"]
    assert not machine.get("KeyName")
    [group] = cloud.client("ec2").describe_security_groups(GroupIds=[machine["SecurityGroups"][0]["GroupId"]])["SecurityGroups"]
    assert group["IpPermissions"] == []

    api.update_stack(TemplateBody=template("two.example"), **given)
    assert settled(api, "Theirs")["StackStatus"] == "UPDATE_COMPLETE"
    document = cloud.client("ssm").get_document(Name="theirs")
    content = json.loads(document["Content"])
    assert (document["DocumentType"], content["properties"]["host"]) == ("Session", "two.example")
    assert list(content["parameters"]) == ["localPortNumber"]
    assert machines(cloud.client("ec2"), "theirs") == [second], "a session that is open goes on"

    api.delete_stack(StackName="Theirs")
    assert settled(api, "Theirs") == {}
    assert cloud.inventory() - before == set()
