"""What the constructs around a cluster need of it.

Promises: an `aws_eks_v2.Cluster`, an imported one, or a `TrainingCluster` will do (aws_eks_v2's own Cluster does not match
its ICluster for a type checker).
"""

from __future__ import annotations

from typing import Protocol


class NodesCluster(Protocol):
    """What a node's machine needs of its cluster, EKS or self-managed."""

    @property
    def cluster_name(self) -> str: ...
    @property
    def cluster_security_group_id(self) -> str: ...


class AnyCluster(NodesCluster, Protocol):
    """An EKS cluster, whoever made it."""

    @property
    def cluster_endpoint(self) -> str: ...
    @property
    def cluster_certificate_authority_data(self) -> str: ...
