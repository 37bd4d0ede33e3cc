"""The shared file system of a cluster: EFS that whoever holds one security group can mount, and nobody else.

Promises: encrypted at rest, mounted over TLS from mount targets only, never as root; its security group opens TCP 2049 to
the client group alone; whatever mounts can depend on the mount targets.
"""

from __future__ import annotations

import jsii
from aws_cdk import RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct, IDependable

from constructs_lib.subnets import chosen

NFS = ec2.Port.tcp(2049)


@jsii.implements(ec2.IConnectable)
class SharedFileSystem(Construct):
    """An EFS file system, its mount targets, and an access point for one POSIX user.

    Args:
        scope: parent.
        id: construct id.
        vpc: where it is mounted.
        vpc_subnets: one mount target is made in each zone of these; None: the private subnets.
        encryption_key: KMS key; None: a key that AWS manages (aws/elasticfilesystem).
        posix_id: uid and gid that the access point gives to every client, whoever it is there.
        path: folder of the access point, made at the first mount, owned by `posix_id`.
        removal_policy: RETAIN keeps the file system (its mount targets go); DESTROY deletes it with all it holds.

    Attributes:
        file_system: the file system.
        client_security_group: carry it to mount.
        access_point: mount through it.
        mount_targets: depend on it before you mount.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        vpc_subnets: ec2.SubnetSelection | None = None,
        encryption_key: kms.IKey | None = None,
        posix_id: int = 1000,
        path: str = "/paddle",
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        self.client_security_group = ec2.SecurityGroup(
            self, "Clients", vpc=vpc, description="May mount the shared file system", allow_all_outbound=False
        )
        own = ec2.SecurityGroup(
            self, "MountTargets", vpc=vpc, description="Mount targets of the shared file system", allow_all_outbound=False
        )
        self._connections = ec2.Connections(security_groups=[own], default_port=NFS)
        self._connections.allow_default_port_from(self.client_security_group, "NFS from those who carry the client group")
        policy = iam.PolicyDocument(
            statements=[
                iam.PolicyStatement(
                    sid="MountTargetsOnly",
                    principals=[iam.AnyPrincipal()],
                    # No ClientRootAccess: root is squashed, the access point sets the user.
                    actions=["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
                    conditions={"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
                ),
                iam.PolicyStatement(
                    sid="TlsOnly",
                    effect=iam.Effect.DENY,
                    principals=[iam.AnyPrincipal()],
                    actions=["*"],
                    conditions={"Bool": {"aws:SecureTransport": "false"}},
                ),
            ]
        )
        self.file_system = efs.FileSystem(
            self,
            "FileSystem",
            vpc=vpc,
            vpc_subnets=chosen(vpc, vpc_subnets, one_per_az=True),
            security_group=own,
            encrypted=True,
            kms_key=encryption_key,
            throughput_mode=efs.ThroughputMode.ELASTIC,
            lifecycle_policy=efs.LifecyclePolicy.AFTER_30_DAYS,
            out_of_infrequent_access_policy=efs.OutOfInfrequentAccessPolicy.AFTER_1_ACCESS,
            file_system_policy=policy,
            removal_policy=removal_policy,
        )
        self.mount_targets: IDependable = self.file_system.mount_targets_available
        owner = efs.PosixUser(uid=str(posix_id), gid=str(posix_id))
        self.access_point = self.file_system.add_access_point(
            "AccessPoint",
            path=path,
            posix_user=owner,
            create_acl=efs.Acl(owner_uid=owner.uid, owner_gid=owner.gid, permissions="0750"),
        )

    @property
    def connections(self) -> ec2.Connections:
        """The mount targets' network connections; prefer `client_security_group`."""
        return self._connections

    @property
    def dns_name(self) -> str:
        """Name that resolves, inside the VPC, to the mount target of the client's zone."""
        stack = self.file_system.stack
        return f"{self.file_system.file_system_id}.efs.{stack.region}.{stack.url_suffix}"
