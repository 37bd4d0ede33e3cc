"""What MiniStack's EC2 leaves out of one machine's own things: its volume, its network interface, the address on that.

Promises: a fixed address, a volume's key and what an Elastic IP is on are told by DescribeNetworkInterfaces, DescribeVolumes and
DescribeAddresses; an address that is taken, outside its subnet or one of AWS's own five is refused as AWS does; a volume is
never moved or sealed again.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from ministack.services import ec2
from resource_types import Call, Made, Properties, around

FIXED = ("AvailabilityZone", "Encrypted", "KmsKeyId")


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


def _interface_create(create: Call, logical_id: str, props: Properties, stack: str) -> Made:
    address = _free_address(props["SubnetId"], props.get("PrivateIpAddress"))
    identifier, attributes = create(logical_id, props, stack)
    ec2._network_interfaces[identifier]["PrivateIpAddress"] = address
    return identifier, attributes | {"PrimaryPrivateIpAddress": address}


def _interface_update(update: Call, identifier: str, old: Properties, new: Properties, *rest: Any) -> Made:
    groups = [{"GroupId": group, "GroupName": group} for group in new.get("GroupSet") or []]
    ec2._network_interfaces[identifier] |= {"Groups": groups, "Description": new.get("Description", "")}
    _, attributes = update(identifier, old, new, *rest)
    return identifier, attributes | {"PrimaryPrivateIpAddress": ec2._network_interfaces[identifier]["PrivateIpAddress"]}


def _associate(create: Call, logical_id: str, props: Properties, stack: str) -> Made:
    interface = ec2._network_interfaces.get(props.get("NetworkInterfaceId", ""))
    if interface is None:
        raise ValueError(f"InvalidNetworkInterfaceID.NotFound: {props.get('NetworkInterfaceId')} does not exist")
    made: Made = create(logical_id, props, stack)
    ec2._addresses[props["AllocationId"]] |= {name: interface[name] for name in ("NetworkInterfaceId", "PrivateIpAddress")}
    return made


def _volume_create(create: Call, logical_id: str, props: Properties, stack: str) -> Made:
    made: Made = create(logical_id, props, stack)
    ec2._volumes[made[0]]["KmsKeyId"] = props.get("KmsKeyId", "")
    return made


def _volume_update(update: Call, identifier: str, old: Properties, new: Properties, *rest: Any) -> Made:
    for name in FIXED:
        if old.get(name) != new.get(name):
            raise ValueError(f"Update to resource type AWS::EC2::Volume property {name} is not supported")
    return update(identifier, old, new, *rest)


def apply() -> None:
    """Put the handlers above around those of the calls, and let EC2 tell what they have kept."""
    around("AWS::EC2::NetworkInterface", create=_interface_create, update=_interface_update)
    around("AWS::EC2::EIPAssociation", create=_associate)
    around("AWS::EC2::Volume", create=_volume_create, update=_volume_update)
    volume, addresses = ec2._volume_inner_xml, ec2._describe_addresses

    def sealed(record: Mapping[str, Any]) -> str:
        key = record.get("KmsKeyId")
        return str(volume(record)) + (f"<kmsKeyId>{key}</kmsKeyId>" if key else "")

    def placed(parameters: Any) -> Any:
        status, headers, body = addresses(parameters)
        text = body.decode()
        for record in ec2._addresses.values():
            if record.get("AssociationId") and "NetworkInterfaceId" in record:
                place = f"<publicIp>{record['PublicIp']}</publicIp>"
                told = f"<networkInterfaceId>{record['NetworkInterfaceId']}</networkInterfaceId>"
                told += f"<privateIpAddress>{record['PrivateIpAddress']}</privateIpAddress>"
                text = text.replace(place, place + told)
        return status, headers, text.encode()

    ec2._volume_inner_xml = sealed
    ec2._describe_addresses = placed
    ec2._ACTION_MAP["DescribeAddresses"] = placed
