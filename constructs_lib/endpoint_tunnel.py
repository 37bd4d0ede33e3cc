"""The way to a private endpoint: one small machine, and a Session Manager document that leads through it there and nowhere else.

Promises: a session's host and port stand in the document, and its user chooses a port of their own machine alone; the machine
takes no connection, has no public address, no SSH and no right but to take sessions; one that fails is replaced, and so is one
that is a month old, by the newest Amazon Linux. It reaches Session Manager by NAT or by the VPC's interface endpoints
(`ssm` and `ssmmessages`).
"""

from __future__ import annotations

import jsii
from aws_cdk import Stack, Tags
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, wildcards
from constructs_lib.key import open_to_node_volumes
from constructs_lib.machine import launch_template, launch_template_of, one_at_a_time, session_role
from constructs_lib.statements import OF_MACHINES, statements
from constructs_lib.subnets import chosen

TAG = "paddle-aws/tunnel"
"""The machine's tag; its value is the document's name."""
IMAGE = "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64"
DISK_GIB = 8
"""Amazon Linux's own size."""
MONTH = 30 * 24 * 3600
PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"


@jsii.implements(ec2.IConnectable)
class EndpointTunnel(Construct):
    """A machine and a session document for one host and port.

    The host's security group must let the machine in: `tunnel.connections.allow_to(endpoint, ec2.Port.tcp(443))`.

    Args:
        host: name or address of the endpoint, as the machine sees it.
        port: its port.
        document_name: name of the session document, taken once in an account and region.
        instance_type: EC2 type of the machine, a 64-bit ARM one.
        vpc_subnets: where the machine lies; None: the private subnets.
        encryption_key: KMS key of its disk (the policy of one that is imported must let Auto Scaling use it); None: the
            account's default key for EBS.

    Attributes:
        document_name: name of the session document.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        host: str,
        port: int = 443,
        document_name: str,
        instance_type: str = "t4g.nano",
        vpc_subnets: ec2.SubnetSelection | None = None,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id)
        document = ssm.CfnDocument(
            self,
            "Document",
            name=document_name,
            document_type="Session",
            # The name stays, so a changed host is a new version, which becomes the default.
            update_method="NewVersion",
            content={
                "schemaVersion": "1.0",
                "description": "Port forwarding to one endpoint",
                "sessionType": "Port",
                "parameters": {
                    "localPortNumber": {
                        "type": "String",
                        "description": "Port of your own machine",
                        "allowedPattern": f"^{PORT}$",
                        "default": "8443",
                    }
                },
                "properties": {
                    "type": "LocalPortForwarding",
                    "host": host,
                    "portNumber": str(port),
                    "localPortNumber": "{{ localPortNumber }}",
                },
            },
        )
        self.document_name = document.ref
        group = ec2.SecurityGroup(self, "SecurityGroup", vpc=vpc, description="Tunnel", allow_all_outbound=False)
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "Session Manager")
        self._connections = ec2.Connections(security_groups=[group])
        if encryption_key:
            open_to_node_volumes(encryption_key)
        role = session_role(self, "Role")
        template = launch_template(
            self,
            disk_gib=DISK_GIB,
            encryption_key=encryption_key,
            key_pair=None,
            image_id=IMAGE,
            instance_type=ec2.InstanceType(instance_type),
            security_group=group,
            associate_public_ip_address=False,
            role=role,
        )
        machine = autoscaling.CfnAutoScalingGroup(
            self,
            "Resource",
            min_size="1",
            max_size="1",
            vpc_zone_identifier=[subnet.subnet_id for subnet in chosen(vpc, vpc_subnets).subnets or ()],
            launch_template=launch_template_of(template),
            max_instance_lifetime=MONTH,
        )
        one_at_a_time(machine, min_in_service=0, signals=False, at_first=0)
        for tagged in (template, machine):
            Tags.of(tagged).add(TAG, document_name)
            Tags.of(tagged).add("Name", document_name)
        machine.node.add_dependency(role)
        acknowledge(machine, "one machine, replaced when it fails: who opens a tunnel sees whether it runs", "AwsSolutions-AS3")

    @property
    def connections(self) -> ec2.Connections:
        """The machine's network connections."""
        return self._connections


def allow_tunnel(policy: iam.ManagedPolicy, document_name: str) -> None:
    """Lets those who hold `policy` open the tunnel of this document, made here or elsewhere."""
    arn = Stack.of(policy).format_arn
    machines = arn(service="ec2", resource="instance", resource_name="*")
    document = arn(service="ssm", resource="document", resource_name=document_name)
    tag = {f"ssm:resourceTag/{TAG}": document_name}
    policy.add_statements(*statements(OF_MACHINES, "tunnel", document=document, machines=machines, tag=tag))
    acknowledge(policy, "the tunnel's machine, by its tag", *wildcards(policy, machines))
    acknowledge(policy, "EC2's Describe takes no resource", *wildcards(policy, "*"))
