"""What computes: node groups, and the add-ons that need a node to become healthy."""

from __future__ import annotations

from aws_cdk import CfnOutput, Environment, Fn, Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from constructs_lib.addon import ClusterAddon
from constructs_lib.any_cluster import AnyCluster
from constructs_lib.efs_driver import EfsDriver
from constructs_lib.file_system import SharedFileSystem
from constructs_lib.managed_nodes import ManagedNodes
from constructs_lib.node_role import node_role
from stacks.cluster_spec import ClusterSpec


class NodesStack(Stack):
    """Node groups and their add-ons."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        spec: ClusterSpec,
        cluster: AnyCluster,
        vpc: ec2.IVpc,
        file_system: SharedFileSystem,
        env: Environment,
    ) -> None:
        super().__init__(scope, id, env=env, description=f"{spec.name}: worker nodes")
        role = node_role(self, "NodeRole")
        groups = [
            ManagedNodes(
                self,
                name,
                cluster=cluster,
                vpc=vpc,
                instance_types=group.instance_types,
                min_size=group.min,
                desired_size=group.desired,
                max_size=group.max,
                volume_gib=group.volume_gib,
                vpc_subnets=ec2.SubnetSelection(availability_zones=group.availability_zones)
                if group.availability_zones
                else None,
                security_groups=[file_system.client_security_group],
                role=role,
                depends_on=[file_system.mount_targets],
            )
            for name, group in spec.nodes.items()
        ]
        # Deployments: they wait for a node, and an add-on whose pods wait never becomes active.
        for addon in (
            ClusterAddon(self, "coredns", cluster=cluster, addon_name="coredns").resource,
            EfsDriver(self, "EfsDriver", cluster=cluster).resource,
        ):
            addon.node.add_dependency(*(group.resource for group in groups))
        names = [Fn.select(1, Fn.split("/", group.resource.ref)) for group in groups]
        CfnOutput(self, "NodeGroupNames", value=",".join(names))
