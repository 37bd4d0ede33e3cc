"""What all stacks of one cluster have in common: name, region, description, and the tags that everything in them carries."""

from __future__ import annotations

from aws_cdk import Environment, Stack, Tags
from constructs import Construct

from stacks.cluster_spec import ClusterSpec


class ClusterPart(Stack):
    """The stack `<cluster>-<part>`; no account is needed at synth.

    Args:
        spec: the cluster.
        part: the last word of the stack's name.
        holds: what is in it, for the description.
    """

    def __init__(self, scope: Construct, spec: ClusterSpec, part: str, holds: str) -> None:
        env = Environment(region=spec.region)
        super().__init__(scope, f"{spec.name}-{part}", env=env, description=f"{spec.name}: {holds}")
        tags = Tags.of(self)
        for key, value in {**spec.tags, "project": "paddle-aws", "cluster": spec.name, "owner": spec.owner}.items():
            tags.add(key, value)
        # kube-up's tag of old, by which its documents find what belongs to a cluster. Not on security groups: Kubernetes' load
        # balancers want exactly one of a node's groups to carry a cluster's tag, and EKS tags the one that it makes. (A
        # self-managed cluster makes no load balancers.)
        but = [] if spec.cluster.self_managed else ["AWS::EC2::SecurityGroup"]
        tags.add("KubernetesCluster", spec.name, exclude_resource_types=but)
