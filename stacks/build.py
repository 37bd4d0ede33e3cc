"""All stacks of one cluster, in one place: the order of their lifetimes, the tags that everything carries.

Promises: strong references only from a shorter life to a longer one (nodes -> cluster -> storage -> network -> access), so
that compute goes while data stays; no stack needs an account at synth.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import Environment, Stack, Tags
from constructs import Construct

from stacks.access import AccessStack
from stacks.add_on_lock import locked_versions
from stacks.cluster import ClusterStack
from stacks.cluster_spec import ClusterSpec
from stacks.network import NetworkStack
from stacks.nodes import NodesStack
from stacks.storage import StorageStack

if TYPE_CHECKING:
    from stacks.own_cluster import OwnClusterStack
    from stacks.own_nodes import OwnNodesStack


@dataclass(frozen=True)
class Stacks:
    """The stacks of a cluster."""

    access: AccessStack
    network: NetworkStack
    storage: StorageStack
    cluster: ClusterStack | OwnClusterStack
    nodes: NodesStack | OwnNodesStack
    watch: Stack | None


def build(scope: Construct, spec: ClusterSpec, *, locks: Path | None = None) -> Stacks:
    """The stacks that `spec` asks for, below `scope`; `locks`: the folder that `paddle-aws lock` writes to."""
    env = Environment(region=spec.region)
    access = AccessStack(scope, f"{spec.name}-access", spec=spec, env=env)
    key = access.key
    network = NetworkStack(scope, f"{spec.name}-network", spec=spec, key=key, env=env)
    vpc = network.vpc
    storage = StorageStack(scope, f"{spec.name}-storage", spec=spec, key=key, vpc=vpc, env=env)
    cluster: ClusterStack | OwnClusterStack
    nodes: NodesStack | OwnNodesStack
    if spec.cluster.self_managed:
        # Here, not above: like the budget's, its services' modules cost everybody else's synth time.
        from stacks.own_cluster import OwnClusterStack, release
        from stacks.own_nodes import OwnNodesStack

        # Before anything is made: without a lock there is one sentence and no template.
        runs = release(spec)
        cluster = OwnClusterStack(
            scope,
            f"{spec.name}-cluster",
            spec=spec,
            release=runs,
            key=key,
            node_volume_key=access.node_volume_key,
            vpc=vpc,
            zone=network.zone,
            bucket=storage.bucket,
            people=access.people,
            env=env,
        )
        nodes = OwnNodesStack(
            scope,
            f"{spec.name}-nodes",
            spec=spec,
            release=runs,
            home=cluster,
            vpc=vpc,
            file_system=storage.file_system,
            bucket=storage.bucket,
            node_volume_key=access.node_volume_key,
            env=env,
        )
    else:
        locked = locked_versions(locks, spec.cluster.version) if locks else {}
        addon_versions = {**locked, **spec.cluster.addons}
        cluster = ClusterStack(
            scope,
            f"{spec.name}-cluster",
            spec=spec,
            key=key,
            vpc=vpc,
            zone=network.zone,
            bucket=storage.bucket,
            people=access.people,
            addon_versions=addon_versions,
            env=env,
        )
        nodes = NodesStack(
            scope,
            f"{spec.name}-nodes",
            spec=spec,
            cluster=cluster.cluster,
            vpc=vpc,
            file_system=storage.file_system,
            key=key,
            node_volume_key=access.node_volume_key,
            addon_versions=addon_versions,
            env=env,
        )
    watch: Stack | None = None
    if spec.budget:
        # Here, not above: most clusters have no budget, and its services' modules cost a tenth of a second.
        from stacks.watch import WatchStack

        watch = WatchStack(
            scope, f"{spec.name}-watch", spec=spec, budget=spec.budget, key=key, file_system=storage.file_system, env=env
        )
    stacks = Stacks(access, network, storage, cluster, nodes, watch)
    for stack in vars(stacks).values():
        if stack is not None:
            tag(stack, spec)
    return stacks


def tag(scope: Construct, spec: ClusterSpec) -> None:
    """Tags everything below `scope`."""
    tags = Tags.of(scope)
    for key, value in {**spec.tags, "project": "paddle-aws", "cluster": spec.name, "owner": spec.owner}.items():
        tags.add(key, value)
    # kube-up's tag of old, by which its documents find what belongs to a cluster. Not on security groups: Kubernetes' load
    # balancers want exactly one of a node's groups to carry a cluster's tag, and EKS tags the one that it makes. (A
    # self-managed cluster makes no load balancers.)
    but = [] if spec.cluster.self_managed else ["AWS::EC2::SecurityGroup"]
    tags.add("KubernetesCluster", spec.name, exclude_resource_types=but)
