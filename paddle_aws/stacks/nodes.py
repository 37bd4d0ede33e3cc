"""Compute: node groups, and the add-ons that need a node to become healthy."""

from ipaddress import ip_network
from typing import Any, cast

from aws_cdk import Annotations, CfnResource
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks

from constructs_lib.acknowledged import acknowledge
from constructs_lib.ec2.machine import node_role
from constructs_lib.ec2.node_group import NodeGroupProps
from constructs_lib.ec2.node_rules import AMI_TYPES
from constructs_lib.eks.addon import ClusterAddon, ContainerLogs, EfsDriver, FsxDriver
from constructs_lib.eks.auto_mode import AutoModeNodes
from constructs_lib.eks.managed_nodes import ManagedNodes
from constructs_lib.eks.self_managed_nodes import SelfManagedNodeRole, SelfManagedNodes
from constructs_lib.storage.file_system import MountableFileSystem
from constructs_lib.storage.lustre import LustreFileSystem
from paddle_aws.stacks.cluster import ClusterStack
from paddle_aws.stacks.node_settings import NodeGroup
from paddle_aws.stacks.part import Platform, PlatformStack, warn_of_types

METRIC_DAYS = 7
"""Retention of the log events that carry metrics; CloudWatch keeps the metrics themselves for
months.
"""


class NodesStack(PlatformStack):
    """Node groups and their add-ons.

    Args:
        platform: the platform that it is a part of.

    Attributes:
        cluster: the EKS cluster.
        groups: the node groups, in the order of the settings.
    """

    def __init__(self, platform: Platform) -> None:
        super().__init__(platform, "nodes", "worker nodes")
        warn_of_types(self, self.spec)
        _warn_of_zones(self)
        # Of a self-managed cluster the nodes stack is another one.
        spec, control_plane = self.spec, cast(ClusterStack, platform.control_plane)
        self.cluster: eks.ICluster = control_plane.cluster
        # One role for all groups of a kind: EKS admits the managed groups' role on its own, and the
        # other through one entry.
        kinds = set() if spec.auto else {group.kind for group in spec.nodes.values()}
        self._role = node_role(self, "NodeRole") if "managed" in kinds else None
        self._self_managed_role = (
            SelfManagedNodeRole(self, "SelfManaged", cluster=self.cluster)
            if "self-managed" in kinds
            else None
        )
        self.groups = (
            []
            if spec.auto
            else [self.make_group(name, group) for name, group in spec.nodes.items()]
        )
        if control_plane.auto_mode_role:
            shapes = {name: group.shape for name, group in spec.nodes.items()}
            auto = AutoModeNodes(
                self,
                "Auto",
                cluster=self.cluster,
                vpc=platform.network.vpc,
                role=control_plane.auto_mode_role,
                shapes=shapes,
                security_groups=[platform.storage.file_system.client_security_group],
            )
            self.output(AutoMode=auto.machines)
            # Jobs' network policies name it.
            self.output(ClusterDns=str(ip_network(spec.cluster.services)[10]))
            acknowledge(self, "`paddle-aws setup` writes them into NodeClasses", "cfn-lint:W6001")
        for addon in self.make_addons():
            # Deployments wait for a node, and an add-on whose pods wait never becomes active.
            addon.node.add_dependency(*(group.resource for group in self.groups))
        if self.groups:
            self.output(NodeGroupNames=",".join(group.group_name for group in self.groups))
        output_mounts(self)

    def group_props(self, name: str, group: NodeGroup) -> NodeGroupProps:
        """Returns a group's props; override it to add some, such as `extra_user_data`."""
        return props_of(self.platform, group)

    def make_group(
        self, name: str, group: NodeGroup, *, ami_type: str | None = None
    ) -> ManagedNodes | SelfManagedNodes:
        """Returns a node group; override it to make another one, or to give it EKS's name of
        another image (`ami_type`).
        """
        platform, cluster, settings = self.platform, self.cluster, self.spec.cluster
        versions = platform.addon_versions
        props = self.group_props(name, group)
        if group.kind == "managed":
            version: dict[str, Any] = {
                "kubernetes_version": settings.version,
                "release_version": versions.get(ami_type or AMI_TYPES[group.gpu]),
            }
            if settings.existing and "version" not in settings.model_fields_set:
                # The settings do not say which version somebody else's cluster has.
                version = {}
            return ManagedNodes(
                self,
                name,
                cluster=cluster,
                vpc=platform.network.vpc,
                role=self._role,
                auto_repair=group.repairs,
                ami_type=ami_type,
                **version,
                **props,
            )
        return SelfManagedNodes(
            self,
            # The resource of a logical id cannot change its type, but a group may change its kind.
            f"{name}-{group.kind}",
            cluster=cluster,
            vpc=platform.network.vpc,
            role=self._self_managed_role,
            kubernetes_version=settings.version,
            service_ipv4_cidr=settings.services,
            ami_type=ami_type,
            **props,
        )

    def make_addons(self) -> list[CfnResource]:
        """Returns the add-ons that need a node; override it to add to them: each waits for all
        groups.
        """
        cluster, spec, versions = self.cluster, self.spec, self.platform.addon_versions

        def plain(name: str) -> CfnResource:
            return ClusterAddon(
                self, name, cluster=cluster, addon_name=name, version=versions.get(name)
            ).resource

        addons = [] if spec.auto else [plain("coredns")]
        if isinstance(self.platform.storage.file_system, LustreFileSystem):
            fsx = versions.get("aws-fsx-csi-driver")
            addons.append(FsxDriver(self, "FsxDriver", cluster=cluster, version=fsx).resource)
        else:
            efs = versions.get("aws-efs-csi-driver")
            addons.append(EfsDriver(self, "EfsDriver", cluster=cluster, version=efs).resource)
        if spec.metrics_server:
            addons.append(plain("metrics-server"))
        if not spec.auto and any(group.repairs for group in spec.nodes.values()):
            # Auto repair acts on what this agent reports: kernel, network and disk faults, besides
            # a silent kubelet.
            addons.append(plain("eks-node-monitoring-agent"))
        if spec.node_metrics:
            logs = ContainerLogs(
                self,
                "ContainerLogs",
                cluster=cluster,
                cluster_name=spec.cluster_name,
                days=spec.logs.days or METRIC_DAYS,
                logs=bool(spec.logs.days),
                encryption_key=self.platform.access.key,
                version=versions.get("amazon-cloudwatch-observability"),
            )
            addons.append(logs.resource)
        return addons


def _warn_of_zones(stack: PlatformStack) -> None:
    """Warns at synth of nodes that may run in other zones than a file system that is in one."""
    spec = stack.spec
    if not spec.file_system.lustre:
        return
    for name, group in spec.nodes.items():
        zones = group.availability_zones or spec.network.zones
        if elsewhere := sorted(set(zones) - {spec.file_system_zone}):
            Annotations.of(stack).add_warning_v2(
                f"paddle-aws:file-system-zone-{name}",
                f"nodes.{name} may run in {', '.join(elsewhere)}, and the file system is in "
                f"{spec.file_system_zone}: data between zones is slower and costs money; set "
                f"nodes.{name}.availability_zones to [{spec.file_system_zone}]",
            )


def output_mounts(stack: PlatformStack) -> None:
    """Outputs where nodes mount the file system: jobs with `host-path` find it only there."""
    groups = stack.spec.nodes.values()
    folders = {group.mount_file_system for group in groups if group.mount_file_system}
    stack.output(FileSystemMounts=",".join(sorted(folders)) or "none")


def props_of(platform: Platform, group: NodeGroup) -> NodeGroupProps:
    """Returns a group's settings in the form that the constructs of all kinds take."""
    zones, file_system = group.availability_zones, platform.storage.file_system
    return NodeGroupProps(
        shape=group.shape,
        min_size=group.min,
        desired_size=group.desired,
        max_size=group.max,
        vpc_subnets=ec2.SubnetSelection(availability_zones=zones) if zones else None,
        security_groups=[file_system.client_security_group],
        file_system=file_system if isinstance(file_system, MountableFileSystem) else None,
        encryption_key=platform.access.node_volume_key,
        extra_user_data=file_system.prepare_script
        if isinstance(file_system, LustreFileSystem)
        else None,
        environment=platform.spec.proxy_variables,
        certificates=platform.spec.certificates,
        depends_on=[file_system.mount_targets],
    )
