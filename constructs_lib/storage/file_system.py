"""The shared file system of a cluster: EFS that clients in one security group can mount over TLS,
never as root.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack, cast

import jsii
from aws_cdk import Annotations, Duration, RemovalPolicy, Size, Stack, Token
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct, IDependable

from constructs_lib.acknowledged import acknowledge
from constructs_lib.metrics import EFS, MetricOptions, metric
from constructs_lib.rules import FOLDER, POSIX_ID, Violation
from constructs_lib.statements import statements
from constructs_lib.storage.removal import no_snapshot, retain_if_replaced
from constructs_lib.subnets import choose_subnets, closed_group
from constructs_lib.validation import check, merge_options, refuse

POLICY = Path(__file__).with_name("file_system_policy.json")
"""Who may mount. Without ClientRootAccess root is squashed, and the access point sets the user."""
MOUNT_TARGETS = "Mount targets of the shared file system"


@jsii.implements(ec2.IConnectable)
class MountableFileSystem(Construct):
    """What a client needs to mount a file system, new or existing.

    Attributes:
        client_security_group: clients need it to mount.
        access_point: mount through it; it makes every client the same POSIX user.
        mount_targets: whatever mounts it must depend on them.
    """

    def __init__(self, scope: Construct, id: str, *, vpc: ec2.IVpc) -> None:
        super().__init__(scope, id)
        self.client_security_group = closed_group(
            self, "Clients", vpc, "May mount the shared file system"
        )

    @property
    def connections(self) -> ec2.Connections:
        """Network connections of the mount targets, port 2049; prefer `client_security_group`."""
        return self.file_system.connections

    @property
    def dns_name(self) -> str:
        """DNS name that resolves, inside the VPC, to the mount target in the client's zone."""
        return (
            f"{self.file_system.file_system_id}.efs.{self.file_system.stack.region}."
            f"{self.file_system.stack.url_suffix}"
        )

    @property
    def volume_source(self) -> Mapping[str, str]:
        """What charts make a PersistentVolume from (job.yaml: `volume: {kind: efs}`)."""
        return {
            "file_system_id": self.file_system.file_system_id,
            "access_point_id": self.access_point.access_point_id,
            "file_system_dns_name": self.dns_name,
        }

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets `grantee` mount and read with its IAM identity."""
        return self.file_system.grant_read(grantee)

    def grant_read_write(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets `grantee` mount, read and write with its IAM identity."""
        return self.file_system.grant_read_write(grantee)

    def _open(
        self, file_system: efs.IFileSystem, mount_targets: IDependable, posix_id: int, path: str
    ) -> None:
        refuse(self.node.path, check(posix_id=(POSIX_ID, posix_id)))
        self.file_system, self.mount_targets, owner = file_system, mount_targets, str(posix_id)
        self.connections.allow_default_port_from(
            self.client_security_group, "NFS from who carries the client group"
        )
        self.access_point = efs.AccessPoint(
            self,
            "AccessPoint",
            file_system=file_system,
            path=path,
            posix_user=efs.PosixUser(uid=owner, gid=owner),
            create_acl=efs.Acl(owner_uid=owner, owner_gid=owner, permissions="0750"),
        )
        self.node.default_child = (
            file_system.node.default_child or self.access_point.node.default_child
        )

    def metric(self, metric_name: str, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Returns one of the metrics of EFS."""
        dimensions = {"FileSystemId": self.file_system.file_system_id}
        return metric(EFS, metric_name, dimensions, **options)

    def metric_percent_io_limit(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Returns how near the file system is to its I/O limit, per cent; the maximum."""
        options.setdefault("statistic", "Maximum")
        return self.metric("PercentIOLimit", **options)

    def metric_total_io_bytes(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Returns how many bytes were read and written; the sum."""
        options.setdefault("statistic", "Sum")
        return self.metric("TotalIOBytes", **options)

    def metric_client_connections(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Returns how many clients have mounted it; the sum over a minute."""
        options.setdefault("statistic", "Sum")
        options.setdefault("period", Duration.minutes(1))
        return self.metric("ClientConnections", **options)

    def metric_burst_credit_balance(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Returns how many bytes of burst credits are left, with mode bursting; the minimum."""
        options.setdefault("statistic", "Minimum")
        return self.metric("BurstCreditBalance", **options)


class FileSystemOptions(TypedDict, total=False):
    """What `efs.FileSystem` takes and we do not decide; its documentation has the meanings."""

    file_system_name: str
    one_zone: bool
    performance_mode: efs.PerformanceMode
    replication_configuration: efs.ReplicationConfiguration
    replication_overwrite_protection: efs.ReplicationOverwriteProtection
    transition_to_archive_policy: efs.LifecyclePolicy


class SharedFileSystem(MountableFileSystem):
    """An EFS file system, a mount target in each zone, and an access point for one POSIX user.

    Example, in a stack with a VPC. Whoever mounts it carries its security group:

    >>> data = SharedFileSystem(stack, "Data", vpc=vpc)
    >>> props = {"security_groups": [data.client_security_group]}
    >>> props["depends_on"] = [data.mount_targets]

    Args:
        vpc: the VPC.
        vpc_subnets: one mount target is made in each of their zones; None: the private subnets.
        encryption_key: KMS key; None: a key that AWS manages (aws/elasticfilesystem).
        throughput_mode: docs/file-system.md compares the modes.
        provisioned_throughput_per_second: with mode PROVISIONED, and no other.
        require_tls: refuse mounts without TLS and an access point. False allows plain NFS: data
            then crosses the VPC unencrypted, and synth warns about it.
        infrequent_access_after: files not read for this long move to the cheaper class until they
            are read; None: never.
        automatic_backups: daily backups by AWS Backup; they outlive the file system.
        posix_id: uid and gid that the access point gives to every client, whatever user its
            container runs as.
        path: folder of the access point, made at the first mount, owned by `posix_id`.
        removal_policy: RETAIN keeps the file system (without its mount targets); DESTROY deletes it
            with all its data.
        options: passed to `efs.FileSystem`.

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
        encryption_key: kms.IKey | None = None,
        throughput_mode: efs.ThroughputMode = efs.ThroughputMode.ELASTIC,
        provisioned_throughput_per_second: Size | None = None,
        require_tls: bool = True,
        infrequent_access_after: efs.LifecyclePolicy | None = efs.LifecyclePolicy.AFTER_30_DAYS,
        automatic_backups: bool = False,
        posix_id: int = 1000,
        path: str = "/paddle",
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
        **options: Unpack[FileSystemOptions],
    ) -> None:
        super().__init__(scope, id, vpc=vpc)
        refuse(
            self.node.path,
            [
                *_throughput(throughput_mode, provisioned_throughput_per_second),
                *check(path=(FOLDER, path)),
                *no_snapshot(removal_policy),
            ],
        )
        decided = {
            "vpc": vpc,
            # The CDK picks the one zone itself.
            "vpc_subnets": None
            if options.get("one_zone")
            else choose_subnets(vpc, vpc_subnets, one_per_az=True),
            "security_group": closed_group(self, "MountTargets", vpc, MOUNT_TARGETS),
            "encrypted": True,
            "kms_key": encryption_key,
            "throughput_mode": throughput_mode,
            "provisioned_throughput_per_second": provisioned_throughput_per_second,
            "lifecycle_policy": infrequent_access_after,
            "out_of_infrequent_access_policy": efs.OutOfInfrequentAccessPolicy.AFTER_1_ACCESS
            if infrequent_access_after
            else None,
            "file_system_policy": iam.PolicyDocument(
                statements=_policy_statements(self, require_tls)
            ),
            # Otherwise the CDK (feature flag denyAnonymousAccess) adds a statement that lets every
            # client be root.
            "allow_anonymous_access": True,
            "removal_policy": removal_policy,
        }
        props = merge_options(self.node.path, decided, options)
        file_system = efs.FileSystem(self, "FileSystem", **props)
        resource = file_system.node.default_child
        assert isinstance(resource, efs.CfnFileSystem)
        # The CDK only ever sets ENABLED. If the status were left out, backups that were on would
        # stay on.
        resource.add_property_override(
            "BackupPolicy.Status", "ENABLED" if automatic_backups else "DISABLED"
        )
        retain_if_replaced(file_system)
        self._open(file_system, file_system.mount_targets_available, posix_id, path)
        acknowledge(
            file_system,
            "automatic_backups is on: AWS Backup's own plan takes it; the rule looks for a plan "
            "of one's own"
            if automatic_backups
            else "automatic_backups is off: the caller wants no backups of what it holds",
            "NIST.800.53.R5-EFSInBackupPlan",
        )
        if not require_tls:
            Annotations.of(self).add_warning_v2(
                "paddle-aws:plain-nfs",
                "require_tls is false: plain NFS is taken, and data crosses the VPC in the clear",
            )

    @staticmethod
    def from_file_system_attributes(
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        file_system_id: str,
        security_group: ec2.ISecurityGroup | None = None,
        missing_mount_targets: Sequence[ec2.ISubnet] = (),
        posix_id: int = 1000,
        path: str = "/paddle",
    ) -> MountableFileSystem:
        """Makes an existing file system mountable like one of ours.

        Its data, policy and throughput stay as they are. What is made is the client group, a rule
        for it in the mount targets' `security_group` (None: there is no mount target yet, and a
        group is made for the missing ones), an access point, and a mount target in each of
        `missing_mount_targets`.
        """
        mountable = MountableFileSystem(scope, id, vpc=vpc)
        security_group = security_group or closed_group(
            mountable, "MountTargetsGroup", vpc, MOUNT_TARGETS
        )
        file_system = efs.FileSystem.from_file_system_attributes(
            mountable, "FileSystem", file_system_id=file_system_id, security_group=security_group
        )
        targets = Construct(mountable, "MountTargets")
        for subnet in missing_mount_targets:
            zone = subnet.availability_zone
            efs.CfnMountTarget(
                targets,
                # The id is the zone: reordering the subnets replaces nothing. A stack without a
                # region does not know its zones.
                subnet.node.id if Token.is_unresolved(zone) else zone,
                file_system_id=file_system_id,
                subnet_id=subnet.subnet_id,
                security_groups=[security_group.security_group_id],
            )
        mountable._open(file_system, cast(IDependable, targets), posix_id, path)
        return mountable


def _throughput(mode: efs.ThroughputMode, provisioned: Size | None) -> Iterator[Violation]:
    """Refuses a throughput without its mode, and the mode without it."""
    prop = "provisioned_throughput_per_second"
    if mode is efs.ThroughputMode.PROVISIONED and provisioned is None:
        yield Violation(prop, None, "throughput_mode is PROVISIONED: say how much")
    if mode is not efs.ThroughputMode.PROVISIONED and provisioned is not None:
        allowed = f"allowed with throughput_mode PROVISIONED only, not {mode.name}"
        yield Violation(prop, "set", allowed)


def _policy_statements(scope: Construct, require_tls: bool) -> list[iam.PolicyStatement]:
    """Returns the statements of the file system's policy. Plain NFS knows no access points. The
    policy cannot name the one that is made here: it is a property of the file system, which the
    access point refers to.
    """
    stack = Stack.of(scope)
    arn_parts = {"partition": stack.partition, "region": stack.region, "account": stack.account}
    if not require_tls:
        return statements(POLICY, "plain mounts")
    return [*statements(POLICY, "mounts", **arn_parts), *statements(POLICY, "tls")]
