"""The VPC of a training cluster, over named availability zones, with no look-up at synth.

Promises: DNS on (EKS and EFS need it), nodes in private subnets, S3 traffic free of NAT charges by the gateway endpoint,
no public address unless a NAT gateway needs one, and no NAT gateway on an address that somebody chose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_network

from aws_cdk import Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.acknowledged import acknowledge
from constructs_lib.dhcp_options import DhcpOptions
from constructs_lib.flow_logs import FlowLogs
from constructs_lib.service_endpoints import ServiceEndpoints


class TrainingNetwork(Construct):
    """A VPC with private subnets in each zone and, where there is a NAT gateway, public ones.

    Args:
        availability_zones: names of zones, such as us-west-2a.
        cidr: address range, /16 to /24.
        nat_gateways: 0 (nothing reaches the internet), 1, or one for each zone.
        nat_at_the_end: a NAT gateway has the last address of its subnet, not any free one.
        interface_endpoints: AWS's services by private addresses; needed where nat_gateways is 0.
        endpoint_services: which of them; None: those of an EKS cluster.
        domain_name: DHCP options of the VPC's own, with this domain name; None: the account's default ones.
        flow_log_days: how long records of the traffic are kept; 0: none are written.
        encryption_key: KMS key of those records; None: AWS's own.

    Attributes:
        vpc: the VPC.
        private_subnets: where nodes, mount targets and endpoints belong.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        availability_zones: Sequence[str],
        cidr: str = "10.0.0.0/16",
        nat_gateways: int = 1,
        nat_at_the_end: bool = False,
        interface_endpoints: bool = False,
        endpoint_services: Mapping[str, str] | None = None,
        domain_name: str | None = None,
        flow_log_days: int = 30,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id)
        private = ec2.SubnetType.PRIVATE_WITH_EGRESS if nat_gateways else ec2.SubnetType.PRIVATE_ISOLATED
        subnets = [ec2.SubnetConfiguration(name="private", subnet_type=private)]
        if nat_gateways:
            # They hold NAT gateways and load balancers only: 1/256 of the VPC each, /28 at least (the smallest AWS makes).
            public = min(28, int(cidr.rpartition("/")[2]) + 8)
            subnets.insert(
                0,
                ec2.SubnetConfiguration(
                    name="public", subnet_type=ec2.SubnetType.PUBLIC, cidr_mask=public, map_public_ip_on_launch=False
                ),
            )
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            availability_zones=list(availability_zones),
            ip_addresses=ec2.IpAddresses.cidr(cidr),
            nat_gateways=nat_gateways,
            subnet_configuration=subnets,
            enable_dns_hostnames=True,
            enable_dns_support=True,
            # Closing the default group needs a custom resource (CloudFormation cannot edit it); nothing of ours ever carries it.
            restrict_default_security_group=False,
            gateway_endpoints={"S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)},
        )
        acknowledge(
            self.vpc,
            "closing the default group needs a custom resource (CloudFormation cannot edit it); nothing of ours carries it",
            "NIST.800.53.R5-VPCDefaultSecurityGroupClosed",
        )
        for subnet in self.vpc.public_subnets:
            acknowledge(
                subnet,
                "this is what makes a subnet public: NAT gateways alone live there",
                "NIST.800.53.R5-VPCNoUnrestrictedRouteToIGW",
            )
        for subnet in (*self.vpc.public_subnets, *self.vpc.private_subnets, *self.vpc.isolated_subnets):
            acknowledge(subnet, "the caller names the zones on purpose: no look-up at synth", "cfn-lint:W3010")
        if nat_at_the_end:
            for subnet in self.vpc.public_subnets:
                for gateway in subnet.node.find_all():
                    if isinstance(gateway, ec2.CfnNatGateway):
                        # The very last one is the broadcast address, which AWS keeps.
                        gateway.private_ip_address = str(ip_network(subnet.ipv4_cidr_block)[-2])
        self.private_subnets = ec2.SubnetSelection(subnet_type=private)
        # Load balancer controllers find their subnets by these two tags.
        for subnet in self.vpc.public_subnets:
            Tags.of(subnet).add("kubernetes.io/role/elb", "1")
        for subnet in (*self.vpc.private_subnets, *self.vpc.isolated_subnets):
            Tags.of(subnet).add("kubernetes.io/role/internal-elb", "1")
        if interface_endpoints:
            ServiceEndpoints(
                self,
                "Endpoints",
                vpc=self.vpc,
                vpc_subnets=self.private_subnets,
                client_cidr=cidr,
                services=endpoint_services,
            )
        if domain_name:
            DhcpOptions(self, "DhcpOptions", vpc=self.vpc, domain_name=domain_name)
        if flow_log_days:
            FlowLogs(self, "FlowLogs", vpc=self.vpc, days=flow_log_days, encryption_key=encryption_key)
