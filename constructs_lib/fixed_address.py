"""A network interface whose address stays while machines come and go, with an Elastic IP where one is wanted.

Promises: the machine that carries it has this private address and, at its first second, the public one. CloudFormation makes
a new interface before it deletes the old: what would replace one at the same address (another subnet, another type) fails
and rolls back; another address in the same subnet works.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Tags
from aws_cdk import aws_ec2 as ec2
from constructs import Construct


class FixedAddress(Construct):
    """An interface for one machine at a time.

    Args:
        subnet: where.
        security_groups: who may connect.
        private_address: an address of the subnet; None: AWS picks one, and it stays as well.
        elastic_ip: also a public address; the subnet must be a public one.
        name: value of the Name tags.

    Attributes:
        interface_id: the interface.
        private_address: its private address.
        elastic_ip: its public address; None without one.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        subnet: ec2.ISubnet,
        security_groups: Sequence[ec2.ISecurityGroup],
        private_address: str | None = None,
        elastic_ip: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(scope, id)
        interface = ec2.CfnNetworkInterface(
            self,
            "Resource",
            description="Fixed address of the control plane",
            subnet_id=subnet.subnet_id,
            group_set=[group.security_group_id for group in security_groups],
            private_ip_address=private_address,
        )
        self.interface_id = interface.ref
        self.private_address = private_address or interface.attr_primary_private_ip_address
        self.elastic_ip: str | None = None
        if elastic_ip:
            address = ec2.CfnEIP(self, "ElasticIp", domain="vpc")
            ec2.CfnEIPAssociation(
                self, "Association", allocation_id=address.attr_allocation_id, network_interface_id=interface.ref
            )
            self.elastic_ip = address.attr_public_ip
        if name:
            Tags.of(self).add("Name", name)
