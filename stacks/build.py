"""All stacks of one cluster, in one place: the order of their lifetimes, the tags that everything carries.

Promises: strong references only from a shorter life to a longer one (nodes -> cluster -> storage -> network -> access), so
that compute goes while data stays; no stack needs an account at synth.
"""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Environment, Tags
from constructs import Construct

from stacks.access import AccessStack
from stacks.cluster import ClusterStack
from stacks.cluster_spec import ClusterSpec
from stacks.network import NetworkStack
from stacks.nodes import NodesStack
from stacks.storage import StorageStack


@dataclass(frozen=True)
class Stacks:
    """The five stacks of a cluster."""

    access: AccessStack
    network: NetworkStack
    storage: StorageStack
    cluster: ClusterStack
    nodes: NodesStack


def build(scope: Construct, spec: ClusterSpec) -> Stacks:
    """The stacks that `spec` asks for, below `scope`."""
    environment = Environment(region=spec.region)
    access = AccessStack(scope, f"{spec.name}-access", spec=spec, env=environment)
    network = NetworkStack(scope, f"{spec.name}-network", spec=spec, key=access.key, env=environment)
    storage = StorageStack(scope, f"{spec.name}-storage", spec=spec, key=access.key, vpc=network.vpc, env=environment)
    cluster = ClusterStack(
        scope,
        f"{spec.name}-cluster",
        spec=spec,
        key=access.key,
        vpc=network.vpc,
        zone=network.zone,
        bucket=storage.bucket,
        env=environment,
    )
    nodes = NodesStack(
        scope,
        f"{spec.name}-nodes",
        spec=spec,
        cluster=cluster.cluster,
        vpc=network.vpc,
        file_system=storage.file_system,
        env=environment,
    )
    for stack in (access, network, storage, cluster, nodes):
        Tags.of(stack).add("project", "paddle-aws")
        Tags.of(stack).add("cluster", spec.name)
        Tags.of(stack).add("owner", spec.owner)
        # kube-up's tag of old (seed 004), by which its documents find what belongs to a cluster.
        Tags.of(stack).add("KubernetesCluster", spec.name)
    return Stacks(access, network, storage, cluster, nodes)
