"""DHCP options of a VPC: which names its machines complete by themselves, and whom they ask.

Promises: Amazon's own name server and time, and a domain name of your choice; going with its stack, the VPC is back at the
account's defaults.
"""

from __future__ import annotations

from aws_cdk import aws_ec2 as ec2
from constructs import Construct


class DhcpOptions(Construct):
    """DHCP options, in use by a VPC.

    Args:
        vpc: whose.
        domain_name: what a name without dots is completed with, such as the region's `us-west-2.compute.internal`.
    """

    def __init__(self, scope: Construct, id: str, *, vpc: ec2.IVpc, domain_name: str) -> None:
        super().__init__(scope, id)
        options = ec2.CfnDHCPOptions(
            self, "Resource", domain_name=domain_name, domain_name_servers=["AmazonProvidedDNS"], ntp_servers=["169.254.169.123"]
        )
        ec2.CfnVPCDHCPOptionsAssociation(self, "Association", dhcp_options_id=options.ref, vpc_id=vpc.vpc_id)
