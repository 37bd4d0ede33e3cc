"""What one machine owns (volume, interface, address, key pair, secrets): deployed, looked at by boto3, gone again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rehearsal.cloud import Cloud

pytestmark = pytest.mark.slow

Stack = Callable[..., dict[str, Any]]


def resource(kind: str, **properties: Any) -> dict[str, Any]:
    return {"Type": kind, "Properties": properties}


def ref(logical_id: str) -> dict[str, str]:
    return {"Ref": logical_id}


NETWORK = {
    "Vpc": resource("AWS::EC2::VPC", CidrBlock="172.20.0.0/16"),
    "Subnet": resource("AWS::EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="172.20.0.0/24", AvailabilityZone="us-west-2a"),
}
INTERFACE = resource("AWS::EC2::NetworkInterface", SubnetId=ref("Subnet"), PrivateIpAddress="172.20.0.9")


@pytest.fixture(autouse=True)
def nothing_is_left(cloud: Cloud) -> Iterator[None]:
    before = cloud.inventory()
    yield
    left = [one for one in sorted(cloud.inventory() - before) if one.type != "snapshot"]
    assert left == []


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("172.20.0.9", "is in use"),
        ("172.20.0.3", "does not fall within"),
        ("172.20.1.9", "does not fall within"),
    ],
)
def test_an_address_that_cannot_be_had(stack: Stack, address: str, why: str) -> None:
    second = resource("AWS::EC2::NetworkInterface", SubnetId=ref("Subnet"), PrivateIpAddress=address)
    with pytest.raises(AssertionError, match=why):
        stack(NETWORK | {"Interface": INTERFACE, "Second": {**second, "DependsOn": "Interface"}})


def test_a_replacement_at_the_same_address_fails_and_the_first_stays(cloud: Cloud, stack: Stack) -> None:
    """CloudFormation makes the new interface before it deletes the old: at one address that cannot work, and rolls back."""
    made = stack(NETWORK | {"Interface": INTERFACE}, {"Interface": ref("Interface")})
    other = {**INTERFACE, "Properties": {**INTERFACE["Properties"], "InterfaceType": "efa"}}
    with pytest.raises(AssertionError, match=r"172\.20\.0\.9 is in use"):
        stack(NETWORK | {"Interface": other}, name=made["StackName"])
    [interface] = cloud.client("ec2").describe_network_interfaces(NetworkInterfaceIds=[made["Interface"]])["NetworkInterfaces"]
    assert interface["InterfaceType"] == "interface"


def test_a_volume_grows_and_never_moves(cloud: Cloud, stack: Stack) -> None:
    def volume(zone: str, size: int) -> dict[str, Any]:
        return {
            "State": {
                **resource("AWS::EC2::Volume", AvailabilityZone=zone, Size=size, Encrypted=True, VolumeType="gp3"),
                "DeletionPolicy": "Snapshot",
            }
        }

    made = stack(volume("us-west-2a", 20), {"Id": ref("State")})
    stack(volume("us-west-2a", 40), name=made["StackName"])
    with pytest.raises(AssertionError, match="AvailabilityZone is not supported"):
        stack(volume("us-west-2b", 40), name=made["StackName"])
    ec2 = cloud.client("ec2")
    [found] = ec2.describe_volumes(VolumeIds=[made["Id"]])["Volumes"]
    assert (found["AvailabilityZone"], found["Size"], found["Encrypted"]) == ("us-west-2a", 40, True)
    cloudformation = cloud.client("cloudformation")
    cloudformation.delete_stack(StackName=made["StackName"])
    with pytest.raises(cloudformation.exceptions.ClientError, match="does not exist"):
        cloudformation.describe_stacks(StackName=made["StackName"])
    [left] = [one for one in ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"] if one["VolumeId"] == made["Id"]]
    assert left["VolumeSize"] == 40
