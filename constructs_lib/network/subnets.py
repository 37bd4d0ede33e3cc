"""Which subnets a construct takes: the selection it was given, or the VPC's private ones."""

from aws_cdk import aws_ec2 as ec2


def chosen(vpc: ec2.IVpc, selection: ec2.SubnetSelection | None, *, one_per_az: bool | None = None) -> ec2.SubnetSelection:
    """`selection` of `vpc` as a list of subnets; without one, the private subnets (isolated ones where there is no NAT)."""
    if selection is None:
        selected = vpc.select_subnets(one_per_az=one_per_az)
    else:
        selected = vpc.select_subnets(
            availability_zones=selection.availability_zones,
            one_per_az=one_per_az or selection.one_per_az,
            subnet_filters=selection.subnet_filters,
            subnet_group_name=selection.subnet_group_name,
            subnets=selection.subnets,
            subnet_type=selection.subnet_type,
        )
    return ec2.SubnetSelection(subnets=selected.subnets)
