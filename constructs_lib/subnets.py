"""What constructs use of a VPC: the subnets they were given, or its private ones, and security
groups.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import jsii
from aws_cdk import Annotations, Aspects, IAspect
from aws_cdk import aws_ec2 as ec2
from constructs import Construct, IConstruct

from constructs_lib.validation import is_token

STAND_IN = "vpc-12345"
"""The id of what the CDK puts in place of a VPC that it has not looked up yet: its subnets are not
those of the VPC.
"""
SERVICES: dict[str, dict[str, str]] = json.loads(
    Path(__file__).with_name("network").joinpath("endpoint_services.json").read_text("utf-8")
)
"""The AWS services that a cluster's nodes call, by kind of cluster."""


def choose_subnets(
    vpc: ec2.IVpc, selection: ec2.SubnetSelection | None, *, one_per_az: bool | None = None
) -> ec2.SubnetSelection:
    """Returns `selection` of `vpc` as a list of subnets; without one, the private subnets (isolated
    ones if there is no NAT).
    """
    preferred = selection or ec2.SubnetSelection()
    if vpc.vpc_id == STAND_IN and preferred.subnets is None:
        preferred = ec2.SubnetSelection()
    selected = vpc.select_subnets(
        availability_zones=preferred.availability_zones,
        one_per_az=one_per_az or preferred.one_per_az,
        subnet_filters=preferred.subnet_filters,
        subnet_group_name=preferred.subnet_group_name,
        subnets=preferred.subnets,
        subnet_type=preferred.subnet_type,
    )
    return ec2.SubnetSelection(subnets=selected.subnets)


def closed_group(scope: Construct, id: str, vpc: ec2.IVpc, description: str) -> ec2.SecurityGroup:
    """Returns a security group that opens nothing by itself, in either direction."""
    return ec2.SecurityGroup(scope, id, vpc=vpc, description=description, allow_all_outbound=False)


def zones_of(subnets: Iterable[ec2.ISubnet]) -> set[str] | None:
    """Returns the availability zones of `subnets`; None if only the deploy knows one of them."""
    zones = {subnet.availability_zone for subnet in subnets}
    # A list that is a token has one entry, which the CDK knows for a token in its list alone.
    return None if any(is_token(zone) or is_token([zone]) for zone in zones) else zones


def warn_of_isolation(
    scope: Construct, vpc: ec2.IVpc, subnets: Iterable[ec2.ISubnet], kind: str
) -> None:
    """Has synth warn of nodes in isolated subnets of a VPC that this app makes, and list the
    endpoints that they lack. What lies in somebody else's VPC is not known here.
    """
    if isinstance(vpc, ec2.Vpc):
        isolated = {subnet.node.addr for subnet in vpc.isolated_subnets}
        if any(subnet.node.addr in isolated for subnet in subnets):
            Aspects.of(scope).add(_Isolation(scope, vpc, kind))


@jsii.implements(IAspect)
class _Isolation:
    """Looks when the app is complete: endpoints may be made after the nodes."""

    def __init__(self, scope: Construct, vpc: ec2.IVpc, kind: str) -> None:
        self._scope, self._vpc, self._kind = scope, vpc, kind

    def visit(self, node: IConstruct) -> None:
        if node.node.addr != self._scope.node.addr:
            return
        # Region and suffix may be tokens.
        names = [
            re.sub(r"\$\{Token\[[^]]*\]\}", "", str(endpoint.service_name))
            for endpoint in self._scope.node.root.node.find_all()
            if isinstance(endpoint, ec2.CfnVPCEndpoint) and endpoint.vpc_id == self._vpc.vpc_id
        ]
        services = ["s3", *SERVICES[self._kind].values()]
        if missing := [s for s in services if not any(n.endswith(f".{s}") for n in names)]:
            Annotations.of(self._scope).add_warning_v2(
                "paddle-aws:isolated-subnets",
                f"the nodes are in subnets without a NAT gateway, and the VPC has no endpoint of "
                f"{', '.join(missing)}: they cannot join the cluster or pull images; add "
                "ServiceEndpoints, and a gateway endpoint of s3",
            )
