"""Access to an EKS cluster: the access entries, and a name for the endpoint."""

from collections.abc import Sequence
from enum import Enum

from aws_cdk import Aws, Duration, Fn
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_route53 as route53
from constructs import Construct

from constructs_lib.rules import NAMESPACE, PRINCIPAL, Violation
from constructs_lib.validation import check, check_list, refuse


class AccessLevel(Enum):
    """What a principal may do: one of AWS's access policies, and a Kubernetes group to which more
    can be bound.
    """

    ADMINISTER = ("AmazonEKSClusterAdminPolicy", "paddle-administrators")
    """Everything."""
    DEPLOY = ("AmazonEKSEditPolicy", "paddle-deployers")
    """Make, change and delete jobs and what they need; see their logs."""
    READ = ("AmazonEKSViewPolicy", "paddle-readers")
    """See everything but secrets."""


class ClusterAccess(Construct):
    """One access entry.

    >>> access = ClusterAccess(
    ...     stack,
    ...     "Ada",
    ...     cluster=cluster,
    ...     principal_arn="arn:aws:iam::111122223333:role/ada",
    ...     level=AccessLevel.DEPLOY,
    ...     namespaces=["paddle"],
    ... )
    >>> access.resource.kubernetes_groups
    ['paddle-deployers']

    Args:
        cluster: the EKS cluster.
        principal_arn: IAM role or user; a principal has one entry per cluster.
        level: what it may do.
        namespaces: where; empty: in the whole cluster.

    Raises:
        ValueError: a sentence for each value that is refused.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: eks.ICluster,
        principal_arn: str,
        level: AccessLevel,
        namespaces: Sequence[str] = (),
    ) -> None:
        super().__init__(scope, id)
        if not isinstance(level, AccessLevel):
            allowed = f"allowed are {', '.join(map(str, AccessLevel))}"
            refuse(self.node.path, [Violation("level", level, allowed)])
        principal = check(principal_arn=(PRINCIPAL, principal_arn))
        refuse(self.node.path, [*principal, *check_list("namespaces", NAMESPACE, namespaces)])
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
                        type="namespace" if namespaces else "cluster",
                        namespaces=list(namespaces) or None,
                    ),
                )
            ],
        )


class EndpointName(Construct):
    """`api.<zone>` as another name for the cluster's endpoint.

    Args:
        zone: the private zone in which the name is.
        cluster: the EKS cluster.

    Attributes:
        name: the whole name.
        host: EKS's own name for the endpoint.
    """

    def __init__(
        self, scope: Construct, id: str, *, zone: route53.IHostedZone, cluster: eks.ICluster
    ) -> None:
        super().__init__(scope, id)
        self.name = f"api.{zone.zone_name}"
        # The endpoint attribute is an https address: the name is what follows the two slashes.
        self.host = Fn.select(2, Fn.split("/", cluster.cluster_endpoint))
        record = route53.CnameRecord(
            self,
            "Record",
            zone=zone,
            record_name="api",
            domain_name=self.host,
            ttl=Duration.minutes(1),
            comment="EKS API endpoint",
        )
        self.node.default_child = record.node.default_child
