"""A tunnel to a private endpoint: a small machine, and a Session Manager document that leads
through it to that endpoint only.

The machine accepts no connections, and has no public address, no SSH and no permission but to take
sessions. A machine that fails or is a month old is replaced by one with the newest Amazon Linux.
"""

import json
from pathlib import Path

import jsii
from aws_cdk import Tags
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from constructs_lib.acknowledged import acknowledge
from constructs_lib.ec2.machine import (
    launch_template,
    launch_template_of,
    replace_one_by_one,
    session_role,
)
from constructs_lib.rules import DOCUMENT_NAME, HOST, PORT
from constructs_lib.statements import fill
from constructs_lib.storage.key_policy import allow_use
from constructs_lib.subnets import choose_subnets, closed_group
from constructs_lib.validation import check, refuse

TAG = "paddle-aws/tunnel"
"""The machine's tag; its value is the document's name."""
IMAGE = "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64"
DOCUMENT = Path(__file__).with_suffix(".json")
"""AWS-StartPortForwardingSessionToRemoteHost, with host and port fixed."""
DISK_GIB = 8
"""Amazon Linux's default size."""
MONTH = 30 * 24 * 3600


@jsii.implements(ec2.IConnectable)
class EndpointTunnel(Construct):
    """A machine and a session document for one host and port.

    >>> tunnel = EndpointTunnel(
    ...     stack, "Tunnel", vpc=vpc, host="db.internal", port=5432, document_name="vision-db"
    ... )

    The host's security group must admit the machine: `tunnel.connections.allow_to(endpoint,
    ec2.Port.tcp(443))`. Users need `ssm:StartSession` on the document, and on instances whose tag
    TAG holds the document's name.

    Args:
        vpc: the VPC.
        port: the port of the host.
        host: name or address of the endpoint, as the machine sees it.
        document_name: name of the session document, unique in its account and region.
        vpc_subnets: where the machine runs; None: the private subnets.
        encryption_key: KMS key of its disk; None: the account's default key for EBS. An imported
            key's policy must let Auto Scaling use it.

    Raises:
        ValueError: a sentence for each value that is refused.
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
        vpc_subnets: ec2.SubnetSelection | None = None,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id)
        violations = check(
            host=(HOST, host), port=(PORT, port), document_name=(DOCUMENT_NAME, document_name)
        )
        refuse(self.node.path, violations)
        document = ssm.CfnDocument(
            self,
            "Document",
            name=document_name,
            document_type="Session",
            # The name stays: a changed host makes a new version of the document, which becomes the
            # default.
            update_method="NewVersion",
            content=fill(
                json.loads(DOCUMENT.read_text(encoding="utf-8")), {"host": host, "port": str(port)}
            ),
        )
        self.document_name = document.ref
        group = closed_group(self, "SecurityGroup", vpc, "Tunnel")
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "Session Manager")
        self._connections = ec2.Connections(security_groups=[group])
        allow_use(encryption_key, "node volumes")
        role = session_role(self, "Role")
        template = launch_template(
            self,
            disk_gib=DISK_GIB,
            encryption_key=encryption_key,
            key_pair=None,
            image_id=IMAGE,
            instance_type=ec2.InstanceType("t4g.nano"),
            security_group=group,
            associate_public_ip_address=False,
            role=role,
        )
        machine = autoscaling.CfnAutoScalingGroup(
            self,
            "Resource",
            min_size="1",
            max_size="1",
            vpc_zone_identifier=[
                subnet.subnet_id for subnet in choose_subnets(vpc, vpc_subnets).subnets or ()
            ],
            launch_template=launch_template_of(template),
            max_instance_lifetime=MONTH,
        )
        replace_one_by_one(machine, min_in_service=0)
        for tagged in (template, machine):
            Tags.of(tagged).add(TAG, document_name)
            Tags.of(tagged).add("Name", document_name)
        machine.node.add_dependency(role)
        why = "one machine, replaced when it fails: who opens a tunnel sees whether it runs"
        acknowledge(machine, why, "AwsSolutions-AS3")

    @property
    def connections(self) -> ec2.Connections:
        """Network connections of the machine."""
        return self._connections
