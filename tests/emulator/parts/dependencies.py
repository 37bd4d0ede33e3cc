"""What AWS refuses to delete because something still uses it; MiniStack deletes it.

Promises: a stack that takes things away in the wrong order (a security group before the nodes that carry it, a subnet
under a mount target) fails here by name as it would on AWS, instead of looking fine. No machine boots: a node group and an
Auto Scaling group count as users of what their machines would use.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ministack.services import autoscaling, ec2, efs, eks
from resource_types import Call, Properties, around

User = tuple[str, str]
"""A kind of thing and its identifier."""

THINGS = {
    "AWS::EC2::SecurityGroup": "security group",
    "AWS::EC2::Subnet": "subnet",
    "AWS::EC2::EIP": "address",
    "AWS::EC2::VPCGatewayAttachment": "gateway attachment",
    # AWS deletes it under an Auto Scaling group, which then can start no machine: refused here, to see the order.
    "AWS::EC2::LaunchTemplate": "launch template",
    "AWS::EC2::PlacementGroup": "placement group",
    "AWS::EC2::NetworkInterface": "network interface",
    "AWS::EC2::Volume": "volume",
}
USERS = {
    "security group": ec2._security_groups,
    "mount target": efs._mount_targets,
    "cluster": eks._clusters,
    "node group": eks._nodegroups,
    "Auto Scaling group": autoscaling._asgs,
    "endpoint": ec2._vpc_endpoints,
    "network interface": ec2._network_interfaces,
    "NAT gateway": ec2._nat_gateways,
}
"""Whose records, or whose machines' launch templates and user data, name what they use."""


def apply() -> None:
    """Ask for users before each delete."""
    for kind, thing in THINGS.items():
        around(kind, delete=partial(_refuse_in_use, thing))


def _refuse_in_use(thing: str, delete: Call, physical_id: str, props: Properties) -> None:
    users = {"address": users_of_address, "gateway attachment": users_of_attachment}.get(thing, users_of)
    if found := sorted({" ".join(user) for user in users(physical_id, props)}):
        raise ValueError(f"DependencyViolation: {thing} {physical_id} has a dependent object: {', '.join(found)}")
    delete(physical_id, props)


def users_of(identifier: str, props: Properties) -> Iterator[User]:
    """All resources that name it. Identifiers are long and made up: no other text holds one."""
    for thing, store in USERS.items():
        for key, record in store.items():
            told = [record, _template(specification(record))]
            if key != identifier and record.get("State") != "deleted" and identifier in json.dumps(told, default=str):
                yield thing, key


def _template(specification: Mapping[str, Any]) -> dict[str, Any]:
    """A launch template's data with its user data as text."""
    data = _template_data(specification)
    return {**data, "UserData": base64.b64decode(data.get("UserData") or "").decode(errors="replace")}


def users_of_address(public_ip: str, props: Properties) -> Iterator[User]:
    """The NAT gateway or the network interface that has it."""
    for allocation, record in ec2._addresses.items():
        if record["PublicIp"] == public_ip:
            yield from users_of(allocation, props)
            if record.get("AssociationId") and "NetworkInterfaceId" in record:
                yield "network interface", record["NetworkInterfaceId"]


def users_of_attachment(physical_id: str, props: Properties) -> Iterator[User]:
    """An internet gateway stays while its VPC has a mapped public address."""
    if "InternetGatewayId" in props:
        for gateway, record in ec2._nat_gateways.items():
            if record["VpcId"] == props.get("VpcId") and record["State"] != "deleted" and record["ConnectivityType"] == "public":
                yield "NAT gateway", gateway


def specification(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """The launch template of a node group or an Auto Scaling group."""
    mixed = (group.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}
    return group.get("launchTemplate") or group.get("LaunchTemplate") or mixed.get("LaunchTemplateSpecification") or {}


def _template_data(specification: Mapping[str, Any]) -> Mapping[str, Any]:
    template = specification.get("LaunchTemplateId") or specification.get("id")
    name = specification.get("LaunchTemplateName") or specification.get("name")
    for key, record in ec2._launch_templates.items():
        if template == key or (name and record["LaunchTemplateName"] == name):
            return record["Versions"][-1]["LaunchTemplateData"]
    return {}
