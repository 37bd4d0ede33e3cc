"""The CloudFormation types of one machine's own things: its volume, its network interface, the address on that.

Promises: as resource_types.py, which registers them; what MiniStack's EC2 leaves out (a fixed address, a volume's key,
what an Elastic IP is on) is told by DescribeNetworkInterfaces, DescribeVolumes and DescribeAddresses; an address that
is taken, outside its subnet or one of AWS's own five is refused as AWS does; a volume is never moved or sealed anew.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from calls import client
from ministack.services import ec2
from ministack.services.cloudformation import provisioners
from resource_types import Made, Properties, ResourceType, _pick, _retag, _specified, _told

TYPES: dict[str, ResourceType] = {}

INTERFACE = ("Description", "GroupSet", "InterfaceType", "PrivateIpAddress", "SubnetId")


def _free_address(subnet: str, wanted: str | None) -> str:
    """`wanted`, or the subnet's first free address."""
    network = ipaddress.ip_network(ec2._subnets[subnet]["CidrBlock"])
    taken = {record["PrivateIpAddress"] for record in ec2._network_interfaces.values() if record["SubnetId"] == subnet}
    if wanted is None:
        return next(str(network[place]) for place in range(4, network.num_addresses - 1) if str(network[place]) not in taken)
    place = int(ipaddress.ip_address(wanted)) - int(network.network_address)
    if not 4 <= place < network.num_addresses - 1:
        raise ValueError(f"InvalidParameterValue: Address {wanted} does not fall within the subnet's address range")
    if wanted in taken:
        raise ValueError(f"InvalidIPAddress.InUse: Address {wanted} is in use.")
    return wanted


def _interface_create(logical_id: str, props: Properties, stack: str) -> Made:
    given = _pick(props, *INTERFACE)
    address = _free_address(given["SubnetId"], given.pop("PrivateIpAddress", None))
    told = {"Groups" if name == "GroupSet" else name: value for name, value in given.items()}
    made = client("ec2").create_network_interface(**told)["NetworkInterface"]
    identifier: str = made["NetworkInterfaceId"]
    _retag(identifier, {}, props)
    ec2._network_interfaces[identifier]["PrivateIpAddress"] = address
    return identifier, _interface(identifier)


def _interface(identifier: str) -> dict[str, Any]:
    record = ec2._network_interfaces[identifier]
    return {"Id": identifier, "PrimaryPrivateIpAddress": record["PrivateIpAddress"], "VpcId": record["VpcId"]}


def _interface_update(physical_id: str, old: Properties, new: Properties) -> Made:
    _pick(new, *INTERFACE)
    record = ec2._network_interfaces[physical_id]
    record["Groups"] = [{"GroupId": group, "GroupName": group} for group in new.get("GroupSet") or []]
    record["Description"] = new.get("Description", "")
    _retag(physical_id, old, new)
    return physical_id, _interface(physical_id)


TYPES["AWS::EC2::NetworkInterface"] = ResourceType(
    _interface_create,
    lambda physical_id, props: client("ec2").delete_network_interface(NetworkInterfaceId=physical_id),
    _interface_update,
    replacing=("InterfaceType", "PrivateIpAddress", "SubnetId"),
)


def _association_create(logical_id: str, props: Properties, stack: str) -> Made:
    interface = ec2._network_interfaces.get(props.get("NetworkInterfaceId", ""))
    if interface is None:
        raise ValueError(f"InvalidNetworkInterfaceID.NotFound: {props.get('NetworkInterfaceId')} does not exist")
    made = client("ec2").associate_address(**props)["AssociationId"]
    record = ec2._addresses[props["AllocationId"]]
    record |= {"NetworkInterfaceId": props["NetworkInterfaceId"], "PrivateIpAddress": interface["PrivateIpAddress"]}
    return made, {"Id": made}


def _association_delete(physical_id: str, props: Properties) -> None:
    client("ec2").disassociate_address(AssociationId=physical_id)
    for record in ec2._addresses.values():
        if record["AllocationId"] == props["AllocationId"]:
            record.pop("NetworkInterfaceId", None)


TYPES["AWS::EC2::EIPAssociation"] = ResourceType(_association_create, _association_delete, tags=None)

FIXED = ("AvailabilityZone", "Encrypted", "KmsKeyId")


def _volume_create(logical_id: str, props: Properties, stack: str) -> Made:
    given = _told(props)
    told = {**given, "Size": int(given.get("Size", 8)), "Encrypted": provisioners._cfn_bool(given.get("Encrypted", False))}
    identifier: str = client("ec2").create_volume(**told, **_specified("volume", props))["VolumeId"]
    ec2._volumes[identifier]["KmsKeyId"] = given.get("KmsKeyId", "")
    return identifier, {"VolumeId": identifier}


def _volume_update(physical_id: str, old: Properties, new: Properties) -> Made:
    given = _pick(new, *FIXED, "Size", "VolumeType")
    for name in FIXED:
        if old.get(name) != new.get(name):
            raise ValueError(f"Update to resource type AWS::EC2::Volume property {name} is not supported")
    client("ec2").modify_volume(VolumeId=physical_id, Size=int(given["Size"]), VolumeType=given.get("VolumeType", "gp2"))
    _retag(physical_id, old, new)
    return physical_id, {"VolumeId": physical_id}


TYPES["AWS::EC2::Volume"] = ResourceType(
    _volume_create,
    lambda physical_id, props: client("ec2").delete_volume(VolumeId=physical_id),
    _volume_update,
    replacing=(),
    snapshot=lambda physical_id, props: client("ec2").create_snapshot(VolumeId=physical_id),
)


def apply() -> None:
    """Let EC2 tell what the handlers above have kept."""
    volume, addresses = ec2._volume_inner_xml, ec2._describe_addresses

    def sealed(record: Mapping[str, Any]) -> str:
        key = record.get("KmsKeyId")
        return str(volume(record)) + (f"<kmsKeyId>{key}</kmsKeyId>" if key else "")

    def placed(parameters: Any) -> Any:
        status, headers, body = addresses(parameters)
        text = body.decode() if isinstance(body, bytes) else body
        for record in ec2._addresses.values():
            if record.get("NetworkInterfaceId"):
                place = f"<publicIp>{record['PublicIp']}</publicIp>"
                told = f"<networkInterfaceId>{record['NetworkInterfaceId']}</networkInterfaceId>"
                told += f"<privateIpAddress>{record['PrivateIpAddress']}</privateIpAddress>"
                text = text.replace(place, place + told)
        return status, headers, text.encode() if isinstance(body, bytes) else text

    ec2._volume_inner_xml = sealed
    ec2._describe_addresses = placed
    ec2._ACTION_MAP["DescribeAddresses"] = placed
