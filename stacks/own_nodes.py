"""What computes in a self-managed cluster: groups of nodes that join by its token."""

from __future__ import annotations

from dataclasses import replace

from aws_cdk import CfnOutput
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from constructs_lib.file_system import MountableFileSystem
from constructs_lib.joining_nodes import JoiningNodes, TokenNodeRole
from constructs_lib.release import Release
from stacks.cluster_spec import ClusterSpec
from stacks.node_settings import NodeGroup
from stacks.nodes import shape_of, zones_of
from stacks.own_cluster import OwnClusterStack
from stacks.part import ClusterPart
from stacks.people import BucketArns


class OwnNodesStack(ClusterPart):
    """Node groups.

    Attributes:
        groups: the node groups, in the order of cluster.yaml.
    """

    def __init__(
        self,
        scope: Construct,
        spec: ClusterSpec,
        *,
        release: Release,
        home: OwnClusterStack,
        vpc: ec2.IVpc,
        file_system: MountableFileSystem,
        bucket: s3.IBucket,
        node_volume_key: kms.IKey | None,
    ) -> None:
        super().__init__(scope, spec, "nodes", "worker nodes")
        # An upgrade replaces the control plane first: a node is never newer.
        self.add_stack_dependency(home)
        granted = BucketArns(self, bucket)
        # One role for all groups. Sources alone: the snapshots in the same bucket hold every secret of the cluster.
        role = TokenNodeRole(
            self,
            "Joining",
            cluster=home.cluster,
            release=release,
            data_arns=[granted.sources],
            data_bucket_arn=granted.bucket,
        )

        def made(name: str, group: NodeGroup) -> JoiningNodes:
            ssh = spec.cluster.ssh if group.ssh is None else None
            shape = shape_of(group)
            if ssh:
                shape = replace(shape, key_pair=ssh.key_pair or home.made_key_pair, ssh_from=ssh.allowed_from)
            return JoiningNodes(
                self,
                name,
                cluster=home.cluster,
                vpc=vpc,
                release=release,
                shape=shape,
                min_size=group.min,
                desired_size=group.desired,
                max_size=group.max,
                vpc_subnets=zones_of(group),
                security_groups=[file_system.client_security_group],
                encryption_key=node_volume_key,
                role=role,
                group_name=spec.node_group_name(name),
                depends_on=[file_system.mount_targets],
            )

        self.groups = [made(name, group) for name, group in spec.nodes.items()]
        CfnOutput(self, "NodeGroupNames", value=",".join(group.group_name for group in self.groups))
