"""What computes in a self-managed cluster: groups of nodes that join by its token."""

from dataclasses import replace

from aws_cdk import CfnOutput
from constructs import Construct

from constructs_lib.k3s.node_group import K3sNodeGroup, TokenNodeRole
from constructs_lib.k3s.release import Release
from settings.errors import SettingError
from stacks.cluster_spec import ClusterSpec
from stacks.k3s_cluster import K3sClusterStack
from stacks.node_settings import NodeGroup
from stacks.nodes import props_of
from stacks.part import ClusterPart


class K3sNodesStack(ClusterPart):
    """Node groups."""

    def __init__(self, scope: Construct, spec: ClusterSpec, home: K3sClusterStack, release: Release) -> None:
        super().__init__(scope, spec, "nodes", "worker nodes")
        storage, network, access = home.storage, home.storage.network, home.storage.network.access
        # An upgrade replaces the control plane first: a node is never newer.
        self.add_stack_dependency(home)
        self.add_stack_dependency(storage)
        # One role for all groups. Sources alone: the snapshots in the same bucket hold every secret of the cluster.
        role = TokenNodeRole(
            self,
            "Joining",
            cluster=home.cluster,
            release=release,
            data_arns=[f"{storage.bucket_arn}/sources/*"],
            data_bucket_arn=storage.bucket_arn,
        )

        def made(name: str, group: NodeGroup) -> K3sNodeGroup:
            props = props_of(group, storage.file_system, access.node_volume_key)
            if group.ssh is None and (ssh := spec.cluster.ssh):
                # A plain name, not a reference: this stack comes after the cluster's anyway, and needs no export of it.
                key_pair = ssh.key_pair or spec.name
                props["shape"] = replace(props["shape"], key_pair=key_pair, ssh_from=ssh.allowed_from)
            group_name = spec.node_group_name(name)
            try:
                return K3sNodeGroup(
                    self, name, cluster=home.cluster, vpc=network.vpc, release=release, role=role, group_name=group_name, **props
                )
            except ValueError as error:
                raise SettingError(f"nodes.{name}: {error}") from None

        self.groups = [made(name, group) for name, group in spec.nodes.items()]
        CfnOutput(self, "NodeGroupNames", value=",".join(group.group_name for group in self.groups))
