"""The VPC of a training cluster, in named availability zones, with no look-up at synth; its
endpoints and flow logs.
"""

from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import TypedDict, Unpack

import jsii
from aws_cdk import Aws, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib import rules, subnets
from constructs_lib.acknowledged import acknowledge
from constructs_lib.addresses import VPC_RANGE
from constructs_lib.storage.log_group import EndingLogGroup
from constructs_lib.subnets import choose_subnets, closed_group
from constructs_lib.validation import (
    check,
    drop_token,
    drop_tokens,
    is_token,
    merge_options,
    refuse,
)

SERVICES = subnets.SERVICES["eks"]
"""What EKS's documentation on private clusters requires, and what the EFS driver, Session Manager
and CloudWatch's agent call.
"""
SELF_MANAGED_SERVICES = subnets.SERVICES["self-managed"]
"""Services that the machines of a self-managed cluster call, including those for secrets and for
the signal that a machine is ready.
"""


@jsii.implements(ec2.IConnectable)
class ServiceEndpoints(Construct):
    """Interface endpoints of one VPC.

    Args:
        vpc: the VPC.
        vpc_subnets: one interface is made in each of their zones; None: the private subnets.
        client_cidr: who may connect; None: the VPC's own addresses.
        services: id: the service as AWS writes it in endpoint names; None: those of an EKS cluster
            (`SERVICES`); empty: none yet.

    Raises:
        ValueError: a sentence for each value that is refused.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        vpc_subnets: ec2.SubnetSelection | None = None,
        client_cidr: str | None = None,
        services: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(scope, id)
        if services is not None and not isinstance(services, Mapping):
            refuse(self.node.path, [rules.Violation("services", services, "allowed is a mapping")])
        group = closed_group(self, "SecurityGroup", vpc, "Endpoints of AWS services")
        group.add_ingress_rule(
            ec2.Peer.ipv4(client_cidr or vpc.vpc_cidr_block),
            ec2.Port.tcp(443),
            "HTTPS from within the VPC",
        )
        self._connections = ec2.Connections(security_groups=[group], default_port=ec2.Port.tcp(443))
        for name, service in (SERVICES if services is None else services).items():
            ec2.InterfaceVpcEndpoint(
                self,
                name,
                vpc=vpc,
                service=ec2.InterfaceVpcEndpointAwsService(service),
                subnets=vpc_subnets,
                security_groups=[group],
                open=False,
                private_dns_enabled=True,
            )

    @property
    def connections(self) -> ec2.Connections:
        """Network connections of the endpoints, port 443."""
        return self._connections


class FlowLogs(Construct):
    """Flow logs of one VPC.

    Args:
        vpc: the VPC whose traffic is logged.
        days: how long the records are kept.
        encryption_key: KMS key of the log group; None: AWS's own.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        days: int = 30,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id)
        self.log_group = EndingLogGroup(self, "Logs", days=days, encryption_key=encryption_key)
        writer = iam.ServicePrincipal(
            "vpc-flow-logs.amazonaws.com",
            conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
        )
        role = iam.Role(self, "Role", assumed_by=writer)
        actions = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
        writes = iam.PolicyStatement(actions=actions, resources=[self.log_group.log_group_arn])
        policy = iam.ManagedPolicy(
            self, "Policy", roles=[role], description="Writes flow logs", statements=[writes]
        )
        flow_log = ec2.CfnFlowLog(
            self,
            "Resource",
            resource_type="VPC",
            resource_id=vpc.vpc_id,
            traffic_type="ALL",
            log_destination_type="cloud-watch-logs",
            log_group_name=self.log_group.log_group_name,
            deliver_logs_permission_arn=role.role_arn,
        )
        flow_log.node.add_dependency(policy)


class ClusterNetwork(Construct):
    """What a cluster needs to know of its network, new or existing.

    Attributes:
        vpc: the VPC.
        private_subnets: where nodes, mount targets and endpoints belong.
    """

    vpc: ec2.IVpc
    private_subnets: ec2.SubnetSelection


class NetworkOptions(TypedDict, total=False):
    """What `ec2.Vpc` takes and we do not decide; its documentation has the meanings."""

    default_instance_tenancy: ec2.DefaultInstanceTenancy
    flow_logs: Mapping[str, ec2.FlowLogOptions]
    ip_protocol: ec2.IpProtocol
    ipv6_addresses: ec2.IIpv6Addresses
    nat_gateway_provider: ec2.NatProvider
    nat_gateway_subnets: ec2.SubnetSelection
    vpc_name: str
    vpn_connections: Mapping[str, ec2.VpnConnectionOptions]
    vpn_gateway: bool
    vpn_gateway_asn: int
    vpn_route_propagation: Sequence[ec2.SubnetSelection]


def _subnets(cidr: str, *, nat: bool) -> list[ec2.SubnetConfiguration]:
    """Returns the layout of each zone: a private subnet and, with NAT, a public one before it."""
    if not nat:
        isolated = ec2.SubnetType.PRIVATE_ISOLATED
        return [ec2.SubnetConfiguration(name="private", subnet_type=isolated)]
    return [
        # Public subnets hold only NAT gateways and load balancers: 1/256 of the VPC each, at least
        # /28 (the smallest in AWS).
        ec2.SubnetConfiguration(
            name="public",
            subnet_type=ec2.SubnetType.PUBLIC,
            cidr_mask=min(28, int(cidr.rpartition("/")[2]) + 8),
            map_public_ip_on_launch=False,
        ),
        ec2.SubnetConfiguration(name="private", subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS),
    ]


class TrainingNetworkOptions(NetworkOptions, total=False):
    """What `TrainingNetwork` takes beside what cluster.yaml says."""

    more_subnets: Sequence[ec2.SubnetConfiguration]
    gateway_endpoints: Mapping[str, ec2.GatewayVpcEndpointOptions]


class TrainingNetwork(ClusterNetwork):
    """A VPC with private subnets in each zone and, where there is a NAT gateway, public ones.

    In a stack that names its account the CDK looks up the account's zones, to compare: override
    the stack's `availability_zones` so that it need not.

    Example; bad input is refused in a sentence:

    >>> TrainingNetwork(stack, "Network", availability_zones=["us-west-2a"], cidr="10.0.0.0/8")
    Traceback (most recent call last):
    ValueError: vision/Network: cidr is 10.0.0.0/8: allowed is a private IPv4 range from /16 ...

    Args:
        availability_zones: names of zones, such as us-west-2a.
        cidr: address range, /16 to /24.
        nat_gateways: 0 (nothing reaches the internet), 1, or one for each zone.
        nat_at_the_end: a NAT gateway gets the last address of its subnet instead of any free one.
        interface_endpoints: private addresses for AWS services; needed if nat_gateways is 0.
        endpoint_services: which services; None: those of an EKS cluster.
        domain_name: the VPC gets its own DHCP options with this domain name; None: the account's
            default options.
        flow_log_days: how long the flow logs are kept; 0: none are written.
        encryption_key: KMS key of the flow logs; None: AWS's own.
        more_subnets: subnets beside ours, such as isolated ones for a database; they are laid out
            after ours.
        gateway_endpoints: beside ours for S3, such as one for DynamoDB.
        options: passed to `ec2.Vpc`.

    Raises:
        ValueError: a sentence for each value that is refused.
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
        more_subnets: Sequence[ec2.SubnetConfiguration] = (),
        gateway_endpoints: Mapping[str, ec2.GatewayVpcEndpointOptions] | None = None,
        **options: Unpack[NetworkOptions],
    ) -> None:
        super().__init__(scope, id)
        zones = drop_tokens(availability_zones)
        refuse(
            self.node.path,
            [
                *rules.refuse_text("availability_zones", availability_zones, "us-west-2a"),
                *rules.refuse_empty("availability_zones", availability_zones, "us-west-2a"),
                *rules.duplicates("availability_zones", zones, "availability zone"),
                # The subnets are laid out at synth.
                *VPC_RANGE("cidr", "a token" if is_token(cidr) else cidr),
                *rules.nat_count(drop_token(nat_gateways), len(availability_zones)),
                *check(flow_log_days=(rules.log_days_or_none, flow_log_days)),
            ],
        )
        s3 = ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)
        decided = {
            "availability_zones": list(availability_zones),
            "ip_addresses": ec2.IpAddresses.cidr(cidr),
            "nat_gateways": nat_gateways,
            "subnet_configuration": [*_subnets(cidr, nat=bool(nat_gateways)), *more_subnets],
            "enable_dns_hostnames": True,
            "enable_dns_support": True,
            "restrict_default_security_group": False,
            "gateway_endpoints": {"S3": s3, **(gateway_endpoints or {})},
        }
        self.vpc = ec2.Vpc(self, "Vpc", **merge_options(self.node.path, decided, options))
        self.node.default_child = self.vpc.node.default_child
        self.private_subnets = ec2.SubnetSelection(subnet_group_name="private")
        self._tag_subnets()
        self._acknowledge()
        if nat_at_the_end:
            self._fix_nat_addresses()
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
            self._name_domain(domain_name)
        if flow_log_days:
            FlowLogs(
                self, "FlowLogs", vpc=self.vpc, days=flow_log_days, encryption_key=encryption_key
            )

    def _tag_subnets(self) -> None:
        """Tags the subnets, by which load balancer controllers find them."""
        for subnet in (*self.vpc.private_subnets, *self.vpc.isolated_subnets):
            Tags.of(subnet).add("kubernetes.io/role/internal-elb", "1")
        for subnet in self.vpc.public_subnets:
            Tags.of(subnet).add("kubernetes.io/role/elb", "1")

    def _acknowledge(self) -> None:
        """Acknowledges findings of the usual checks, with the reasons."""
        acknowledge(
            self.vpc,
            "closing the default group needs a custom resource (CloudFormation cannot edit it); "
            "nothing of ours carries it",
            "NIST.800.53.R5-VPCDefaultSecurityGroupClosed",
        )
        public = self.vpc.public_subnets
        why = "the caller names the zones on purpose: no look-up at synth"
        for subnet in (*public, *self.vpc.private_subnets, *self.vpc.isolated_subnets):
            acknowledge(subnet, why, "cfn-lint:W3010")
        why = "this is what makes a subnet public; nodes lie in the private ones"
        for subnet in public:
            acknowledge(subnet, why, "NIST.800.53.R5-VPCNoUnrestrictedRouteToIGW")

    def _fix_nat_addresses(self) -> None:
        """Gives each NAT gateway the last address of its subnet."""
        for subnet in self.vpc.public_subnets:
            for gateway in subnet.node.find_all():
                if isinstance(gateway, ec2.CfnNatGateway):
                    # AWS reserves the very last address, the broadcast address.
                    gateway.private_ip_address = str(ip_network(subnet.ipv4_cidr_block)[-2])

    def _name_domain(self, domain_name: str) -> None:
        """Makes DHCP options with the domain name. When the stack goes, the VPC returns to the
        account's defaults.
        """
        home = Construct(self, "DhcpOptions")
        # Amazon's own name server and time server.
        dhcp = ec2.CfnDHCPOptions(
            home,
            "Resource",
            domain_name=domain_name,
            domain_name_servers=["AmazonProvidedDNS"],
            ntp_servers=["169.254.169.123"],
        )
        ec2.CfnVPCDHCPOptionsAssociation(
            home, "Association", dhcp_options_id=dhcp.ref, vpc_id=self.vpc.vpc_id
        )

    @staticmethod
    def from_vpc(
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        private_subnets: ec2.SubnetSelection | None = None,
    ) -> ClusterNetwork:
        """Returns an existing VPC as a network; nothing of it is changed.

        Args:
            vpc: such as `ec2.Vpc.from_lookup(self, "Vpc", vpc_id="vpc-...")`, which asks AWS at
                synth, or one of another stack.
            private_subnets: None: those that the CDK takes for private.
        """
        network = ClusterNetwork(scope, id)
        network.vpc, network.private_subnets = vpc, choose_subnets(vpc, private_subnets)
        return network
