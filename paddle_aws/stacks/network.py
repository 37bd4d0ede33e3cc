"""The network: the VPC and the private DNS zone."""

from aws_cdk import Annotations, CfnWaitConditionHandle, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_route53 as route53

from constructs_lib.network.network import (
    SELF_MANAGED_SERVICES,
    FlowLogs,
    ServiceEndpoints,
    TrainingNetwork,
    TrainingNetworkOptions,
)
from paddle_aws.stacks.network_settings import ExistingVpc
from paddle_aws.stacks.part import NetworkPart, Platform, PlatformStack


class NetworkStack(PlatformStack):
    """The VPC and the private DNS zone, new or existing.

    Args:
        platform: the platform that it is a part of.
    """

    def __init__(self, platform: Platform) -> None:
        super().__init__(platform, "network", "network")
        spec, access = self.spec, platform.access
        settings, self_managed = spec.network, spec.cluster.self_managed
        services = SELF_MANAGED_SERVICES if self_managed else None
        # Domain of EC2's private names (VPC user guide, DNS attributes).
        domain = "ec2.internal" if spec.region == "us-east-1" else f"{spec.region}.compute.internal"
        self.vpc: ec2.IVpc
        if settings.existing:
            self.vpc = self._existing(settings.existing)
            if settings.interface_endpoints:
                ServiceEndpoints(self, "Endpoints", vpc=self.vpc, services=services)
            if settings.flow_log_days:
                FlowLogs(
                    self,
                    "FlowLogs",
                    vpc=self.vpc,
                    days=settings.flow_log_days,
                    encryption_key=access.key,
                )
        else:
            self.vpc = TrainingNetwork(
                self,
                "Network",
                **settings.model_dump(exclude={"existing"}),
                # Otherwise the gateway may take the control plane's address, which is assigned
                # later.
                nat_at_the_end=self_managed and spec.cluster.elastic_ip,
                endpoint_services=services,
                # EC2's own machine names, set instead of assumed: the kubelet's certificates
                # contain them.
                domain_name=domain if self_managed else None,
                encryption_key=access.key,
                **self.network_options(),
            ).vpc
        self.zone: route53.IHostedZone
        if spec.zone.existing:
            self.zone = route53.HostedZone.from_hosted_zone_attributes(
                self,
                "Zone",
                hosted_zone_id=spec.zone.existing.id,
                zone_name=spec.zone.existing.name,
            )
        else:
            self.zone = route53.PrivateHostedZone(
                self, "Zone", vpc=self.vpc, zone_name=spec.zone.name
            )
        if (
            settings.existing
            and spec.zone.existing
            and not (settings.flow_log_days or settings.interface_endpoints)
        ):
            # CloudFormation accepts no stack without resources; this resource does nothing and
            # costs nothing.
            CfnWaitConditionHandle(self, "Nothing")
        self.output(**network_outputs(self))
        # Data and environment Jobs take them.
        proxies = {"HttpProxy": "HTTP_PROXY", "HttpsProxy": "HTTPS_PROXY", "NoProxy": "NO_PROXY"}
        variables = spec.proxy_variables
        self.output(**{out: variables[name] for out, name in proxies.items() if name in variables})
        if spec.certificates:
            self.output(Certificates=spec.certificates)

    def network_options(self) -> TrainingNetworkOptions:
        """Returns more arguments of the VPC; override it to add subnets or gateway endpoints."""
        return {}

    @property
    def availability_zones(self) -> list[str]:
        """The zones of cluster.yaml where the stack has an account, which the CDK would ask."""
        has_account = not Token.is_unresolved(self.account)
        return (
            list(self.spec.network.availability_zones)
            if has_account
            else super().availability_zones
        )

    def _existing(self, existing: ExistingVpc) -> ec2.IVpc:
        zones, public = list(existing.private_subnets), existing.public_subnets
        vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id=existing.id,
            vpc_cidr_block=existing.cidr,
            availability_zones=zones,
            private_subnet_ids=list(existing.private_subnets.values()),
            public_subnet_ids=[public[zone] for zone in zones]
            if self.spec.network.has_public_subnets
            else None,
        )
        for subnet in (*vpc.private_subnets, *vpc.public_subnets):
            # The routes of somebody else's subnets are never read or changed.
            Annotations.of(subnet).acknowledge_warning(
                "@aws-cdk/aws-ec2:noSubnetRouteTableId", "routes stay as they are"
            )
        return vpc


def network_outputs(network: NetworkPart) -> dict[str, str]:
    """Returns the outputs that commands and people read."""
    return {
        "VpcId": network.vpc.vpc_id,
        "ZoneId": network.zone.hosted_zone_id,
        "ZoneName": network.zone.zone_name,
    }
