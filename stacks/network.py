"""Where: the VPC and the private DNS zone."""

from __future__ import annotations

from aws_cdk import CfnOutput, Environment, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_route53 as route53
from constructs import Construct

from constructs_lib.network import TrainingNetwork
from stacks.cluster_spec import ClusterSpec


class NetworkStack(Stack):
    """The VPC and the private DNS zone."""

    def __init__(self, scope: Construct, id: str, *, spec: ClusterSpec, key: kms.IKey, env: Environment) -> None:
        super().__init__(scope, id, env=env, description=f"{spec.name}: network")
        network = TrainingNetwork(
            self,
            "Network",
            availability_zones=spec.network.availability_zones,
            cidr=spec.network.cidr,
            nat_gateways=spec.network.nat_gateways,
        )
        self.vpc = network.vpc
        self.zone = route53.PrivateHostedZone(self, "Zone", vpc=self.vpc, zone_name=spec.zone.name)
        CfnOutput(self, "VpcId", value=self.vpc.vpc_id)
        CfnOutput(self, "ZoneId", value=self.zone.hosted_zone_id)
        CfnOutput(self, "ZoneName", value=self.zone.zone_name)
