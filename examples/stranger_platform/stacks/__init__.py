"""The parts of the platform that this organization replaces."""

from collections.abc import Mapping

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_kms as kms
from constructs import Construct
from settings import OrgSpec

from constructs_lib.eks.addon import ClusterAddon
from constructs_lib.people.team import Team
from constructs_lib.storage.shared_file_system import ISharedFileSystem
from paddle_aws.stacks.nodes import NodesStack
from paddle_aws.stacks.part import Platform
from paddle_aws.stacks.storage import StorageStack


class OpenZfs(Construct):
    """FSx for OpenZFS in one zone. Its jobs say `volume: {kind: nfs, path: /fsx}`."""

    def __init__(
        self, scope: Construct, id: str, *, vpc: ec2.IVpc, key: kms.IKey, size_gib: int
    ) -> None:
        super().__init__(scope, id)
        self.client_security_group = ec2.SecurityGroup(
            self, "Clients", vpc=vpc, description="May mount OpenZFS", allow_all_outbound=False
        )
        servers = ec2.SecurityGroup(
            self, "Servers", vpc=vpc, description="OpenZFS", allow_all_outbound=False
        )
        for port in (111, 2049, 20001, 20002, 20003):
            servers.connections.allow_from(
                self.client_security_group, ec2.Port.tcp(port), "NFS from who may mount"
            )
        root = fsx.CfnFileSystem.RootVolumeConfigurationProperty(data_compression_type="ZSTD")
        self.mount_targets = fsx.CfnFileSystem(
            self,
            "Resource",
            file_system_type="OPENZFS",
            kms_key_id=key.key_arn,
            storage_capacity=size_gib,
            subnet_ids=[vpc.private_subnets[0].subnet_id],
            security_group_ids=[servers.security_group_id],
            open_zfs_configuration=fsx.CfnFileSystem.OpenZFSConfigurationProperty(
                automatic_backup_retention_days=30,
                copy_tags_to_backups=True,
                deployment_type="SINGLE_AZ_2",
                root_volume_configuration=root,
                throughput_capacity=160,
            ),
        )

    @property
    def volume_source(self) -> Mapping[str, str]:
        """What charts mount."""
        system = self.mount_targets
        return {"file_system_id": system.ref, "file_system_dns_name": system.attr_dns_name}


class SequencingStorage(StorageStack):
    """The shared file system is OpenZFS where the settings give it a size."""

    def make_file_system(self, vpc: ec2.IVpc, key: kms.IKey) -> ISharedFileSystem:
        """Returns the file system."""
        spec = self.spec
        if not isinstance(spec, OrgSpec) or spec.openzfs_gib is None:
            return super().make_file_system(vpc, key)
        system = OpenZfs(self, "OpenZfs", vpc=vpc, key=key, size_gib=spec.openzfs_gib)
        system.mount_targets.apply_removal_policy(self.removal_policy)
        return system


class SequencingNodes(NodesStack):
    """Adds an add-on, which waits for the nodes, and a team that reads the bucket."""

    def __init__(self, platform: Platform) -> None:
        super().__init__(platform)
        addon = ClusterAddon(
            self, "Snapshots", cluster=self.cluster, addon_name="snapshot-controller"
        )
        addon.node.add_dependency(*(group.resource for group in self.groups))
        self.sequencers = Team(self, "Sequencers", task=f"Sequence for {self.spec.name}")
        platform.storage.bucket.grant_read(self.sequencers)
