"""FSx for Lustre: a file system of persistent SSDs in one zone, for programs that read with many
GPUs, and its link to a bucket.

Ports and security groups: FSx for Lustre user guide, "File System Access Control with Amazon VPC".
Sizes and throughput: its "Performance", and CloudFormation's AWS::FSx::FileSystem.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Literal, TypedDict, Unpack

import jsii
from aws_cdk import RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from constructs_lib.metrics import FSX, MetricOptions, metric
from constructs_lib.rules import (
    BACKUP_DAYS,
    LUSTRE_FOLDER,
    POSIX_ID,
    Violation,
    lustre_capacity,
    lustre_throughput,
)
from constructs_lib.storage.key_policy import allow_use
from constructs_lib.storage.removal import retain_if_replaced
from constructs_lib.subnets import choose_subnets, closed_group
from constructs_lib.validation import check, refuse

PORTS = (ec2.Port.tcp(988), ec2.Port.tcp_range(1018, 1023))
PREPARE = Path(__file__).with_name("prepare-lustre.sh")
Event = Literal["NEW", "CHANGED", "DELETED"]


class LustreOptions(TypedDict, total=False):
    """What Lustre's part of `fsx.CfnFileSystem` takes and we do not decide; its documentation has
    the meanings.
    """

    efa_enabled: bool
    metadata_configuration: fsx.CfnFileSystem.MetadataConfigurationProperty
    weekly_maintenance_start_time: str


@jsii.implements(ec2.IConnectable)
class LustreFileSystem(Construct):
    """A file system of deployment type PERSISTENT_2, with SSDs. It is an `ISharedFileSystem`.

    It belongs to root, and has no access points: give `prepare_script` to a node group's
    `extra_user_data`, so that its jobs' user may make folders in it. Data crosses the network
    encrypted only between machines of types, and in regions, that FSx lists.

    >>> LustreFileSystem(stack, "Data", vpc=vpc, storage_capacity_gib=1500)
    Traceback (most recent call last):
    ValueError: vision/Data: storage_capacity_gib is 1500: allowed is 1200, or a multiple of 2400

    Args:
        vpc: the VPC.
        vpc_subnet: where it is, in one zone; None: the first private subnet. A change of it makes
            another, empty, file system.
        storage_capacity_gib: 1200, or a multiple of 2400. It can grow in place, never shrink.
        per_unit_storage_throughput: MB/s for each TiB: 125, 250, 500 or 1000.
        compression: LZ4, which costs nothing and mostly makes it faster.
        encryption_key: KMS key; None: a key that AWS manages (aws/fsx).
        backup_days: how long daily backups are kept, 0 to 90; 0: none are made. They end with the
            file system.
        posix_id: uid and gid of the owner that `prepare_script` gives to its root.
        removal_policy: RETAIN keeps the file system; DESTROY deletes it with all its data.
        options: passed to FSx.

    Attributes:
        client_security_group: clients need it to mount.
        file_system_id: FSx's id.
        dns_name: the file system's name in DNS.
        mount_name: what follows the DNS name where it is mounted: `<dns name>@tcp:/<mount name>`.
        storage_capacity_gib: its size.
        resource: the file system itself.

    Raises:
        ValueError: a sentence for each value that is refused.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        vpc_subnet: ec2.ISubnet | None = None,
        storage_capacity_gib: int = 1200,
        per_unit_storage_throughput: int = 125,
        compression: bool = True,
        encryption_key: kms.IKey | None = None,
        backup_days: int = 0,
        posix_id: int = 1000,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
        **options: Unpack[LustreOptions],
    ) -> None:
        super().__init__(scope, id)
        violations = check(
            storage_capacity_gib=(lustre_capacity, storage_capacity_gib),
            per_unit_storage_throughput=(lustre_throughput, per_unit_storage_throughput),
            backup_days=(BACKUP_DAYS, backup_days),
            posix_id=(POSIX_ID, posix_id),
        )
        refuse(self.node.path, violations)
        self.storage_capacity_gib = storage_capacity_gib
        self._posix_id, self._backup_days = posix_id, backup_days
        self.client_security_group = closed_group(
            self, "Clients", vpc, "May mount the Lustre file system"
        )
        servers = closed_group(self, "Servers", vpc, "Lustre file servers")
        self._connections = ec2.Connections(security_groups=[servers])
        for port in PORTS:
            servers.connections.allow_internally(port, "Lustre between the servers")
            servers.connections.allow_from(self.client_security_group, port, "Lustre clients")
            servers.connections.allow_to(self.client_security_group, port, "Lustre calls back")
        subnet = vpc_subnet or (choose_subnets(vpc, None).subnets or [])[0]
        self.resource = fsx.CfnFileSystem(
            self,
            "Resource",
            file_system_type="LUSTRE",
            file_system_type_version="2.15",
            storage_type="SSD",
            storage_capacity=storage_capacity_gib,
            subnet_ids=[subnet.subnet_id],
            security_group_ids=[servers.security_group_id],
            kms_key_id=encryption_key.key_arn if encryption_key else None,
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type="PERSISTENT_2",
                per_unit_storage_throughput=per_unit_storage_throughput,
                data_compression_type="LZ4" if compression else "NONE",
                automatic_backup_retention_days=backup_days,
                copy_tags_to_backups=True if backup_days else None,
                **options,
            ),
        )
        self.resource.apply_removal_policy(removal_policy)
        retain_if_replaced(self.resource)
        # FSx looks at the rules as it makes the file system, and fails if they come later.
        rules = [
            rule
            for group in (self.client_security_group, servers)
            for rule in group.node.find_all()
            if isinstance(rule, ec2.CfnSecurityGroupIngress | ec2.CfnSecurityGroupEgress)
        ]
        self.resource.node.add_dependency(*rules)

    @property
    def file_system_id(self) -> str:
        """FSx's id."""
        return self.resource.ref

    @property
    def dns_name(self) -> str:
        """The file system's name in DNS."""
        stack = self.resource.stack
        return f"{self.file_system_id}.fsx.{stack.region}.{stack.url_suffix}"

    @property
    def mount_name(self) -> str:
        """What follows the DNS name where it is mounted."""
        return self.resource.attr_lustre_mount_name

    @property
    def mount_targets(self) -> fsx.CfnFileSystem:
        """What must exist before a client mounts."""
        return self.resource

    @property
    def connections(self) -> ec2.Connections:
        """Network connections of the file servers; prefer `client_security_group`."""
        return self._connections

    @property
    def volume_source(self) -> Mapping[str, str]:
        """What charts make a PersistentVolume from (job.yaml: `volume: {kind: lustre}`)."""
        return {
            "file_system_id": self.file_system_id,
            "file_system_dns_name": self.dns_name,
            "file_system_mount_name": self.mount_name,
        }

    @property
    def prepare_script(self) -> str:
        """Lines of a bash script for a node group's `extra_user_data`: they give the root of a new
        file system to `posix_id`, once. A machine that cannot mount it becomes no node.
        """
        return Template(PREPARE.read_text(encoding="utf-8")).substitute(
            source=f"{self.dns_name}@tcp:/{self.mount_name}", owner=self._posix_id
        )

    def add_data_repository(
        self,
        id: str,
        bucket: s3.IBucket,
        *,
        prefix: str = "",
        folder: str = "/bucket",
        import_events: Sequence[Event] = ("NEW", "CHANGED", "DELETED"),
        export_events: Sequence[Event] = (),
        bucket_key: kms.IKey | None = None,
    ) -> fsx.CfnDataRepositoryAssociation:
        """Shows a bucket's objects as files in a folder, which are read from S3 at first use. FSx
        makes no backups of such a file system.

        Args:
            id: id of the association below this construct.
            bucket: in the same region.
            prefix: only objects below it; empty: all.
            folder: where, in the file system; no other association may have it.
            import_events: which changes of the bucket the folder follows.
            export_events: which changes of the folder the bucket follows; empty: none, so that
                nothing a job does there changes the bucket. Files that FSx has not exported are
                lost with the file system.
            bucket_key: KMS key of the bucket, if it has one; an imported key's policy must let
                FSx's role for S3 use it.
        """
        violations = [*check(folder=(LUSTRE_FOLDER, folder))]
        if self._backup_days:
            why = "FSx makes no backups of a file system that is linked to a bucket: make it 0"
            violations.append(Violation("backup_days", self._backup_days, why))
        refuse(self.node.path, violations)
        allow_use(bucket_key, "data repositories")
        kind = fsx.CfnDataRepositoryAssociation
        follow, tell = kind.AutoImportPolicyProperty, kind.AutoExportPolicyProperty
        return kind(
            self,
            id,
            file_system_id=self.file_system_id,
            file_system_path=folder,
            data_repository_path=f"s3://{bucket.bucket_name}/{prefix}".rstrip("/"),
            batch_import_meta_data_on_create=True,
            s3=kind.S3Property(
                auto_import_policy=follow(events=list(import_events)) if import_events else None,
                auto_export_policy=tell(events=list(export_events)) if export_events else None,
            ),
        )

    def metric(self, metric_name: str, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Returns one of the metrics of FSx for Lustre."""
        return metric(FSX, metric_name, {"FileSystemId": self.file_system_id}, **options)

    def metric_free_bytes(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Returns how many bytes are free; the sum over all disks, each minute."""
        options.setdefault("statistic", "Sum")
        return self.metric("FreeDataStorageCapacity", **options)
