"""What the emulator adds to Auto Scaling: machines, as many as a group wants, replaced where one is terminated."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from rehearsal.cloud import Cloud

pytestmark = pytest.mark.slow

Stack = Callable[..., dict[str, Any]]


def resources(text: str, desired: int, misspelled: bool = False) -> dict[str, Any]:
    data = {
        "ImageId": "ami-0123456789abcdef0",
        "InstanceType": "m5.large",
        "UserData": base64.b64encode(text.encode()).decode(),
        **({"Monitorings": {}} if misspelled else {}),
    }
    version = {"LaunchTemplateId": {"Ref": "Template"}, "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]}}
    return {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "172.20.0.0/16"}},
        "Subnet": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "172.20.0.0/24", "AvailabilityZone": "us-west-2b"},
        },
        "Template": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": data}},
        "Group": {
            "Type": "AWS::AutoScaling::AutoScalingGroup",
            "Properties": {
                "MinSize": "1",
                "MaxSize": "4",
                "DesiredCapacity": str(desired),
                "VPCZoneIdentifier": [{"Ref": "Subnet"}],
                "LaunchTemplate": version,
                "Tags": [{"Key": "pool", "Value": "workers", "PropagateAtLaunch": True}],
            },
        },
    }


def running(cloud: Cloud) -> dict[str, dict[str, Any]]:
    found = cloud.client("ec2").describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["running"]}])
    return {one["InstanceId"]: one for each in found["Reservations"] for one in each["Instances"]}


def test_a_group_has_the_machines_that_it_wants(cloud: Cloud, stack: Stack) -> None:
    ec2, autoscaling, cloudformation = (cloud.client(name) for name in ("ec2", "autoscaling", "cloudformation"))
    made = stack(resources("first", 2), {"Group": {"Ref": "Group"}})
    first = running(cloud)
    assert len(first) == 2
    for machine in first.values():
        assert {"Key": "pool", "Value": "workers"} in machine["Tags"]
        assert (machine["InstanceType"], machine["Placement"]["AvailabilityZone"]) == ("m5.large", "us-west-2b")

    [ended, kept] = first
    ec2.terminate_instances(InstanceIds=[ended])
    second = running(cloud)
    assert len(second) == 2 and kept in second and ended not in second
    [group] = autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    assert {one["InstanceId"] for one in group["Instances"]} == set(second)

    autoscaling.set_desired_capacity(AutoScalingGroupName=made["Group"], DesiredCapacity=3)
    assert len(running(cloud)) == 3

    stack(resources("another", 3), name=made["StackName"])
    third = running(cloud)
    assert len(third) == 3 and not set(third) & set(second)
    told = ec2.describe_instance_attribute(InstanceId=next(iter(third)), Attribute="userData")
    assert base64.b64decode(told["UserData"]["Value"]) == b"another"

    cloudformation.delete_stack(StackName=made["StackName"])
    assert running(cloud) == {}


def test_a_machine_that_its_template_cannot_make_fails_the_stack(stack: Stack) -> None:
    with pytest.raises(AssertionError, match="Monitorings"):
        stack(resources("any", 1, misspelled=True))
