"""Who reaches a cluster: by which rights, by which name, and what the constructs around a cluster need of it.

Promises: an `aws_eks_v2.Cluster`, an imported one, or a `TrainingCluster` will do (aws_eks_v2's own Cluster does not match its
ICluster for a type checker); rights come from EKS access entries and AWS's own access policies, never from a ConfigMap.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from aws_cdk import Aws, Duration, Fn
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_route53 as route53
from constructs import Construct


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
        principal_arn: IAM role or user; a principal has one entry a cluster.
        level: what it may do.
        namespaces: where; empty: in the whole cluster.
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


class EndpointName(Construct):
    """`api.<zone>` as another name of the cluster's endpoint.

    Attributes:
        name: the whole name.
    """

    def __init__(self, scope: Construct, id: str, *, zone: route53.IHostedZone, cluster: AnyCluster) -> None:
        super().__init__(scope, id)
        self.name = f"api.{zone.zone_name}"
        # The endpoint attribute is an https address: the name is what follows the two slashes.
        host = Fn.select(2, Fn.split("/", cluster.cluster_endpoint))
        route53.CnameRecord(
            self, "Record", zone=zone, record_name="api", domain_name=host, ttl=Duration.minutes(1), comment="EKS API endpoint"
        )
