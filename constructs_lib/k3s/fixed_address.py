"""The address at which a control plane stays when its machine is replaced."""

from aws_cdk import Tags
from aws_cdk import aws_ec2 as ec2
from constructs import Construct


class FixedAddress(Construct):
    """A network interface that the machine of the day takes, and its Elastic IP.

    CloudFormation creates a new interface before it deletes the old one. A change that would
    replace the interface at the same address (another subnet) fails and rolls back; another address
    in the same subnet works.

    Args:
        subnet: where the interface is; a public one with `elastic_ip`.
        security_group: of the interface.
        private_address: the address in that subnet; None: AWS picks one, which then stays.
        elastic_ip: adds a public address.
        name: of the interface and the Elastic IP.

    Attributes:
        interface_id: the interface's id, for a launch template.
        public_address: the Elastic IP; None: there is none.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        subnet: ec2.ISubnet,
        security_group: ec2.ISecurityGroup,
        private_address: str | None,
        elastic_ip: bool,
        name: str,
    ) -> None:
        super().__init__(scope, id)
        interface = ec2.CfnNetworkInterface(
            self,
            "Resource",
            description="Fixed address of the control plane",
            subnet_id=subnet.subnet_id,
            group_set=[security_group.security_group_id],
            private_ip_address=private_address,
        )
        self.interface_id = interface.ref
        self.private_address = private_address or interface.attr_primary_private_ip_address
        self.public_address: str | None = None
        if elastic_ip:
            eip = ec2.CfnEIP(self, "ElasticIp", domain="vpc")
            ec2.CfnEIPAssociation(
                self,
                "Association",
                allocation_id=eip.attr_allocation_id,
                network_interface_id=interface.ref,
            )
            self.public_address = eip.attr_public_ip
        Tags.of(self).add("Name", name)
