"""The subnets that a construct uses: the selection it was given, or the VPC's private subnets."""

from collections.abc import Iterable

from aws_cdk import aws_ec2 as ec2

from constructs_lib.validation import is_token


def chosen(
    vpc: ec2.IVpc, selection: ec2.SubnetSelection | None, *, one_per_az: bool | None = None
) -> ec2.SubnetSelection:
    """Returns `selection` of `vpc` as a list of subnets; without one, the private subnets (isolated
    ones if there is no NAT).
    """
    wanted = selection or ec2.SubnetSelection()
    selected = vpc.select_subnets(
        availability_zones=wanted.availability_zones,
        one_per_az=one_per_az or wanted.one_per_az,
        subnet_filters=wanted.subnet_filters,
        subnet_group_name=wanted.subnet_group_name,
        subnets=wanted.subnets,
        subnet_type=wanted.subnet_type,
    )
    return ec2.SubnetSelection(subnets=selected.subnets)


def zones_of(subnets: Iterable[ec2.ISubnet]) -> set[str] | None:
    """Returns the availability zones of `subnets`; None if only the deploy knows one of them."""
    zones = {subnet.availability_zone for subnet in subnets}
    # A list that is a token has one entry, which the CDK knows for a token in its list alone.
    return None if any(is_token(zone) or is_token([zone]) for zone in zones) else zones
