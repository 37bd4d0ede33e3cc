"""What AWS refuses to delete because something still uses it; MiniStack deletes it.

Promises: a stack that takes things away in the wrong order (a security group before the nodes that carry it, a subnet
under a mount target) fails here by name as it would on AWS, instead of looking fine. No machine boots: a node group and an
Auto Scaling group count as users of what their machines would use.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ministack.services import autoscaling, ec2, efs, eks
from ministack.services.cloudformation import provisioners

Properties = Mapping[str, Any]
User = tuple[str, str]
"""A kind of thing and its identifier."""


def apply() -> None:
    """Ask for users before each delete."""
    for kind, (thing, users) in {
        "AWS::EC2::SecurityGroup": ("security group", users_of_security_group),
        "AWS::EC2::Subnet": ("subnet", users_of_subnet),
        "AWS::EC2::EIP": ("address", users_of_address),
        "AWS::EC2::VPCGatewayAttachment": ("gateway attachment", users_of_attachment),
        "AWS::EC2::LaunchTemplate": ("launch template", users_of_launch_template),
        "AWS::EC2::PlacementGroup": ("placement group", users_of_placement_group),
        "AWS::EC2::NetworkInterface": ("network interface", users_of_interface),
        "AWS::EC2::Volume": ("volume", users_of_volume),
    }.items():
        _refuse_in_use(kind, thing, users)


def _refuse_in_use(kind: str, thing: str, users: Callable[[str, Properties], Iterator[User]]) -> None:
    handlers = provisioners._RESOURCE_HANDLERS[kind]
    delete = handlers["delete"]

    def deleted(physical_id: str, props: Properties) -> None:
        found = [" ".join(user) for user in users(physical_id, props)]
        if found:
            raise ValueError(
                f"DependencyViolation: {thing} {physical_id} has a dependent object: {', '.join(sorted(set(found)))}"
            )
        delete(physical_id, props)

    handlers["delete"] = deleted


def users_of_security_group(group: str, props: Properties) -> Iterator[User]:
    """Whoever carries it, and the rules of other groups that name it."""
    for other, record in ec2._security_groups.items():
        for rule in record["IpPermissions"] + record["IpPermissionsEgress"]:
            if other != group and any(pair.get("GroupId") == group for pair in rule.get("UserIdGroupPairs", [])):
                yield "security group", other
    for target, record in efs._mount_targets.items():
        if group in record.get("SecurityGroups", []):
            yield "mount target", target
    for name, record in eks._clusters.items():
        network = record["resourcesVpcConfig"]
        if group in (*network.get("securityGroupIds", []), network.get("clusterSecurityGroupId")):
            yield "cluster", name
    for endpoint, record in ec2._vpc_endpoints.items():
        if group in record.get("SecurityGroupIds", []):
            yield "endpoint", endpoint
    for interface, record in ec2._network_interfaces.items():
        if group in {member["GroupId"] for member in record["Groups"]}:
            yield "network interface", interface
    for user, template in _machines():
        data = _template_data(template)
        carried = data.get("SecurityGroupIds") or [
            member for interface in data.get("NetworkInterfaces") or [] for member in interface.get("Groups") or []
        ]
        if group in carried:
            yield user


def users_of_subnet(subnet: str, props: Properties) -> Iterator[User]:
    """Whoever has a network interface in it."""
    for gateway, record in ec2._nat_gateways.items():
        if record["SubnetId"] == subnet and record["State"] != "deleted":
            yield "NAT gateway", gateway
    for target, record in efs._mount_targets.items():
        if record["SubnetId"] == subnet:
            yield "mount target", target
    for name, record in eks._clusters.items():
        if subnet in record["resourcesVpcConfig"].get("subnetIds", []):
            yield "cluster", name
    for key, record in eks._nodegroups.items():
        if subnet in record.get("subnets", []):
            yield "node group", key
    for name, record in autoscaling._asgs.items():
        if subnet in record.get("VPCZoneIdentifier", "").split(","):
            yield "Auto Scaling group", name
    for interface, record in ec2._network_interfaces.items():
        if record["SubnetId"] == subnet:
            yield "network interface", interface
    for endpoint, record in ec2._vpc_endpoints.items():
        if subnet in record.get("SubnetIds", []):
            yield "endpoint", endpoint


def users_of_address(public_ip: str, props: Properties) -> Iterator[User]:
    """The NAT gateway or the network interface that has it."""
    for record in ec2._addresses.values():
        if record["PublicIp"] == public_ip and record.get("NetworkInterfaceId"):
            yield "network interface", record["NetworkInterfaceId"]
    allocations = {key for key, record in ec2._addresses.items() if record["PublicIp"] == public_ip}
    for gateway, record in ec2._nat_gateways.items():
        if record["AllocationId"] in allocations and record["State"] != "deleted":
            yield "NAT gateway", gateway


def users_of_attachment(physical_id: str, props: Properties) -> Iterator[User]:
    """An internet gateway stays while its VPC has a mapped public address."""
    if "InternetGatewayId" in props:
        for gateway, record in ec2._nat_gateways.items():
            if record["VpcId"] == props.get("VpcId") and record["State"] != "deleted" and record["ConnectivityType"] == "public":
                yield "NAT gateway", gateway


def users_of_launch_template(template: str, props: Properties) -> Iterator[User]:
    """AWS deletes it under an Auto Scaling group, which then can start no machine: refused here, to see the order."""
    for user, specification in _machines():
        if specification.get("LaunchTemplateId", specification.get("id")) == template:
            yield user


def users_of_placement_group(name: str, props: Properties) -> Iterator[User]:
    """The machines in it."""
    for user, template in _machines():
        if (_template_data(template).get("Placement") or {}).get("GroupName") == name:
            yield user


def users_of_interface(interface: str, props: Properties) -> Iterator[User]:
    """The machines whose first interface it is."""
    for user, template in _machines():
        named = {one.get("NetworkInterfaceId") for one in _template_data(template).get("NetworkInterfaces") or []}
        if interface in named:
            yield user


def users_of_volume(volume: str, props: Properties) -> Iterator[User]:
    """The machines that attach it when they boot: their user data names it."""
    for user, template in _machines():
        text = _template_data(template).get("UserData") or ""
        if volume.encode() in base64.b64decode(text):
            yield user


def _machines() -> Iterator[tuple[User, Mapping[str, Any]]]:
    """Each group of machines with its launch template's specification."""
    for key, record in eks._nodegroups.items():
        yield ("node group", key), record.get("launchTemplate") or {}
    for name, record in autoscaling._asgs.items():
        mixed = ((record.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}).get("LaunchTemplateSpecification")
        yield ("Auto Scaling group", name), record.get("LaunchTemplate") or mixed or {}


def _template_data(specification: Mapping[str, Any]) -> Mapping[str, Any]:
    template = specification.get("LaunchTemplateId") or specification.get("id")
    name = specification.get("LaunchTemplateName") or specification.get("name")
    for key, record in ec2._launch_templates.items():
        if template == key or (name and record["LaunchTemplateName"] == name):
            data: Mapping[str, Any] = record["Versions"][-1]["LaunchTemplateData"]
            return data
    return {}
