"""`retain`, the one setting that decides what outlives a destroy."""

from __future__ import annotations

from aws_cdk import RemovalPolicy

from stacks.cluster_spec import ClusterSpec


def removal(spec: ClusterSpec) -> RemovalPolicy:
    """What happens to data, and to the key that opens it, when its stack goes."""
    return RemovalPolicy.RETAIN if spec.retain else RemovalPolicy.DESTROY
