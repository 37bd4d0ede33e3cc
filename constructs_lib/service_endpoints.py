"""AWS's services by private addresses, for a cluster that has no way to the internet.

Promises: every service that nodes, add-ons and jobs call has an endpoint in the VPC, open to the VPC's own addresses on
port 443 alone. Container images must then come from ECR (docs/aws.md says which to mirror).
"""

from __future__ import annotations

from collections.abc import Mapping

import jsii
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from constructs_lib.subnets import chosen

SERVICES = {
    "Ec2": "ec2",
    "Eks": "eks",
    "EksAuth": "eks-auth",
    "EcrApi": "ecr.api",
    "EcrDkr": "ecr.dkr",
    "Efs": "elasticfilesystem",
    "Sts": "sts",
    "Logs": "logs",
    "Monitoring": "monitoring",
    "Ssm": "ssm",
    "SsmMessages": "ssmmessages",
}
"""What EKS's documents on private clusters ask for, and what the EFS driver, Session Manager and CloudWatch's agent call."""

SELF_MANAGED_SERVICES = {
    **{name: service for name, service in SERVICES.items() if name not in ("Eks", "EksAuth", "Monitoring")},
    "CloudFormation": "cloudformation",
    "Secrets": "secretsmanager",
}
"""What the machines of a self-managed cluster call: secrets, and the signal that they are ready."""


@jsii.implements(ec2.IConnectable)
class ServiceEndpoints(Construct):
    """Interface endpoints of one VPC.

    Args:
        vpc: where.
        vpc_subnets: one interface is made in each zone of these; None: the private subnets.
        client_cidr: who may connect; None: the VPC's own addresses.
        services: id: AWS's name of the service in the names of endpoints; None: those of an EKS cluster (`SERVICES`).
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
        group = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=vpc, description="Endpoints of AWS services", allow_all_outbound=False
        )
        group.add_ingress_rule(ec2.Peer.ipv4(client_cidr or vpc.vpc_cidr_block), ec2.Port.tcp(443), "HTTPS from within the VPC")
        self._connections = ec2.Connections(security_groups=[group], default_port=ec2.Port.tcp(443))
        for name, service in (services or SERVICES).items():
            ec2.InterfaceVpcEndpoint(
                self,
                name,
                vpc=vpc,
                service=ec2.InterfaceVpcEndpointAwsService(service),
                subnets=chosen(vpc, vpc_subnets, one_per_az=True),
                security_groups=[group],
                open=False,
                private_dns_enabled=True,
            )

    @property
    def connections(self) -> ec2.Connections:
        """The endpoints' network connections, port 443."""
        return self._connections
