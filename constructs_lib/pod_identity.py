"""Rights in AWS for one Kubernetes service account, by EKS Pod Identity.

Promises: a role that only EKS's pod-identity service can take, for one service account of one cluster; it holds nothing
until something is granted to it.
"""

from __future__ import annotations

import jsii
from aws_cdk import Aws, Stack
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.any_cluster import AnyCluster


def pod_identity_principal() -> iam.IPrincipal:
    """Whom a role must trust so that EKS Pod Identity of this account can hand it to a pod."""
    service = iam.ServicePrincipal("pods.eks.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}})
    return iam.SessionTagsPrincipal(service)


@jsii.implements(iam.IGrantable)
class PodIdentity(Construct):
    """A role for the pods of one service account.

    Args:
        cluster: the cluster.
        namespace: the service account's namespace; it need not exist yet.
        service_account: its name; it need not exist yet.

    Attributes:
        role: the role; grant to the construct itself: `bucket.grant_read(identity)`.
    """

    def __init__(self, scope: Construct, id: str, *, cluster: AnyCluster, namespace: str, service_account: str) -> None:
        super().__init__(scope, id)
        role = iam.Role(
            self,
            "Role",
            assumed_by=pod_identity_principal(),
            description=f"Pods of {namespace}/{service_account} in {Stack.of(self).stack_name}",
        )
        self.role = role
        self._purpose = f"What {namespace}/{service_account} may do"
        self._policy: iam.ManagedPolicy | None = None
        self.association = eks.CfnPodIdentityAssociation(
            self,
            "Resource",
            cluster_name=cluster.cluster_name,
            namespace=namespace,
            service_account=service_account,
            role_arn=role.role_arn,
        )

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """Grants become statements of a managed policy: inline ones cannot be reviewed on their own."""
        if self._policy is None:
            self._policy = iam.ManagedPolicy(self, "Policy", roles=[self.role], description=self._purpose)
        return self._policy.grant_principal
