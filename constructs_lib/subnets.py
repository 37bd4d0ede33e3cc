"""The subnets that a construct uses: the selection it was given, or the VPC's private subnets."""

from collections.abc import Iterable

from aws_cdk import aws_ec2 as ec2

from constructs_lib.validation import is_token


def choose_subnets(
    vpc: ec2.IVpc, selection: ec2.SubnetSelection | None, *, one_per_az: bool | None = None
) -> ec2.SubnetSelection:
    """Returns `selection` of `vpc` as a list of subnets; without one, the private subnets (isolated
    ones if there is no NAT).
    """
    preferred = selection or ec2.SubnetSelection()
    selected = vpc.select_subnets(
        availability_zones=preferred.availability_zones,
        one_per_az=one_per_az or preferred.one_per_az,
        subnet_filters=preferred.subnet_filters,
        subnet_group_name=preferred.subnet_group_name,
        subnets=preferred.subnets,
        subnet_type=preferred.subnet_type,
    )
    return ec2.SubnetSelection(subnets=selected.subnets)


def zones_of(subnets: Iterable[ec2.ISubnet]) -> set[str] | None:
    """Returns the availability zones of `subnets`; None if only the deploy knows one of them."""
    zones = {subnet.availability_zone for subnet in subnets}
    # A list that is a token has one entry, which the CDK knows for a token in its list alone.
    return None if any(is_token(zone) or is_token([zone]) for zone in zones) else zones
