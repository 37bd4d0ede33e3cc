"""Who may talk to a cluster's API: one IAM role or user, at one of three levels.

Promises: rights come from EKS access entries and AWS's own access policies, never from a ConfigMap in the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from aws_cdk import Aws
from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from constructs_lib.any_cluster import AnyCluster


class AccessLevel(Enum):
    """What somebody may do in a cluster; each is one of AWS's access policies and a Kubernetes group to bind more to."""

    ADMINISTER = ("AmazonEKSClusterAdminPolicy", "paddle-administrators")
    """Everything."""
    DEPLOY = ("AmazonEKSEditPolicy", "paddle-deployers")
    """Make, change and delete jobs and what they need; see their logs."""
    READ = ("AmazonEKSViewPolicy", "paddle-readers")
    """See everything but secrets."""


class ClusterAccess(Construct):
    """One access entry.

    Args:
        cluster: the cluster.
        principal_arn: IAM role or user; a principal has one entry a cluster.
        level: what it may do.
        namespaces: where; empty: in the whole cluster.

    Attributes:
        resource: the CloudFormation resource.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: AnyCluster,
        principal_arn: str,
        level: AccessLevel,
        namespaces: Sequence[str] = (),
    ) -> None:
        super().__init__(scope, id)
        policy, group = level.value
        self.resource = eks.CfnAccessEntry(
            self,
            "Resource",
            cluster_name=cluster.cluster_name,
            principal_arn=principal_arn,
            kubernetes_groups=[group],
            access_policies=[
                eks.CfnAccessEntry.AccessPolicyProperty(
                    policy_arn=f"arn:{Aws.PARTITION}:eks::aws:cluster-access-policy/{policy}",
                    access_scope=eks.CfnAccessEntry.AccessScopeProperty(
                        type="namespace" if namespaces else "cluster", namespaces=list(namespaces) or None
                    ),
                )
            ],
        )
