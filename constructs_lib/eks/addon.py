"""EKS add-ons, and AWS permissions for their pods and those of jobs, through EKS Pod Identity.

EKS picks an add-on's version unless one is given. The log groups of containers are made here,
encrypted and with a retention time; otherwise the agent would make them with neither.
"""

import json
from collections.abc import Mapping
from typing import Any

import jsii
from aws_cdk import Aws, Stack
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.acknowledged import EVERY_RESOURCE, acknowledge
from constructs_lib.ec2.machine import managed_role
from constructs_lib.rules import NAMESPACE, SERVICE_ACCOUNT, Violation
from constructs_lib.statements import OF_MACHINES, statements
from constructs_lib.storage.log_group import EndingLogGroup
from constructs_lib.validation import check, refuse


def pod_identity_principal() -> iam.IPrincipal:
    """Returns the principal that a role must trust so that EKS Pod Identity of this account can
    give it to a pod.
    """
    service = iam.ServicePrincipal(
        "pods.eks.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
    )
    return iam.SessionTagsPrincipal(service)


@jsii.implements(iam.IGrantable)
class PodIdentity(Construct):
    """A role for the pods of one service account. Grant rights to the construct itself.

    >>> from constructs_lib.storage.bucket import DataBucket
    >>> reader = PodIdentity(
    ...     stack, "Reader", cluster=cluster, namespace="paddle", service_account="paddle-data"
    ... )
    >>> grant = DataBucket(stack, "Bucket").grant_read(reader)

    Args:
        cluster: the EKS cluster.
        namespace: the service account's namespace; it need not exist yet.
        service_account: its name; it need not exist yet.

    Attributes:
        role: the role.

    Raises:
        ValueError: a sentence for each value that is refused.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: eks.ICluster,
        namespace: str,
        service_account: str,
    ) -> None:
        super().__init__(scope, id)
        violations = check(
            namespace=(NAMESPACE, namespace), service_account=(SERVICE_ACCOUNT, service_account)
        )
        refuse(self.node.path, violations)
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
        """Grants become statements of a managed policy, because inline policies cannot be reviewed
        on their own.
        """
        if self._policy is None:
            self._policy = iam.ManagedPolicy(
                self, "Policy", roles=[self.role], description=self._purpose
            )
        return self._policy.grant_principal


class ClusterAddon(Construct):
    """An add-on of an EKS cluster.

    >>> dns = ClusterAddon(stack, "Dns", cluster=cluster, addon_name="coredns")
    >>> dns.resource.addon_name
    'coredns'

    Args:
        cluster: the EKS cluster.
        addon_name: EKS's name for it, such as coredns.
        version: such as v1.2.3-eksbuild.1; None: EKS's default for the cluster's version.
        configuration: the add-on's own settings.
        roles: service account: IAM role of its pods, which must trust EKS Pod Identity
            (`pod_identity_principal`).

    Raises:
        ValueError: a sentence for each value that is refused.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: eks.ICluster,
        addon_name: str,
        version: str | None = None,
        configuration: Mapping[str, Any] | None = None,
        roles: Mapping[str, iam.IRole] | None = None,
    ) -> None:
        super().__init__(scope, id)
        if configuration is not None and not isinstance(configuration, Mapping):
            refuse(
                self.node.path,
                [Violation("configuration", configuration, "allowed is a mapping of settings")],
            )
        identity = eks.CfnAddon.PodIdentityAssociationProperty
        identities = [
            identity(role_arn=role.role_arn, service_account=account)
            for account, role in (roles or {}).items()
        ]
        self.resource = eks.CfnAddon(
            self,
            "Resource",
            addon_name=addon_name,
            cluster_name=cluster.cluster_name,
            addon_version=version,
            configuration_values=json.dumps(configuration, sort_keys=True)
            if configuration
            else None,
            pod_identity_associations=identities or None,
            resolve_conflicts="OVERWRITE",
        )


class EfsDriver(Construct):
    """The aws-efs-csi-driver add-on and its role. The add-on becomes active only when there is a
    node: let it depend on a node group.

    >>> driver = EfsDriver(stack, "EfsDriver", cluster=cluster)
    >>> driver.resource.addon_name
    'aws-efs-csi-driver'

    Args:
        cluster: the EKS cluster.
        version: add-on version; None: EKS's default.
    """

    def __init__(
        self, scope: Construct, id: str, *, cluster: eks.ICluster, version: str | None = None
    ) -> None:
        super().__init__(scope, id)
        self.role = iam.Role(self, "Role", assumed_by=pod_identity_principal())
        policy = iam.ManagedPolicy(
            self,
            "Policy",
            roles=[self.role],
            description="Finds file systems and their mount targets",
            statements=statements(OF_MACHINES, "efs driver"),
        )
        why = "file systems are found by Describe, which reads names and no data"
        acknowledge(policy, why, EVERY_RESOURCE)
        self.resource = ClusterAddon(
            self,
            "Addon",
            cluster=cluster,
            addon_name="aws-efs-csi-driver",
            version=version,
            roles={"efs-csi-controller-sa": self.role},
        ).resource
        self.node.default_child = self.resource
        self.resource.node.add_dependency(policy)


class FsxDriver(Construct):
    """The aws-fsx-csi-driver add-on, without AWS permissions: it mounts FSx file systems that exist
    already, and creates none.

    Args:
        cluster: the EKS cluster.
        version: add-on version; None: EKS's default.
    """

    def __init__(
        self, scope: Construct, id: str, *, cluster: eks.ICluster, version: str | None = None
    ) -> None:
        super().__init__(scope, id)
        self.resource = ClusterAddon(
            self, "Addon", cluster=cluster, addon_name="aws-fsx-csi-driver", version=version
        ).resource
        self.node.default_child = self.resource


POLICY = "CloudWatchAgentServerPolicy"
METRICS = "performance"
GROUPS = ("application", "dataplane", "host", METRICS)
"""Log groups of the agent: /aws/containerinsights/<cluster>/<group>. Metrics travel as events in a
group of their own.
"""


class ContainerLogs(Construct):
    """The amazon-cloudwatch-observability add-on, its log groups and its role.

    Args:
        cluster: the EKS cluster.
        cluster_name: the cluster's name as a plain string, for the names of the log groups.
        days: how long each event is kept.
        logs: also send the logs of containers and nodes; False: only metrics.
        encryption_key: KMS key of the log groups; None: AWS's own.
        version: add-on version; None: EKS's default.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: eks.ICluster,
        cluster_name: str,
        days: int,
        logs: bool = True,
        encryption_key: kms.IKey | None = None,
        version: str | None = None,
    ) -> None:
        super().__init__(scope, id)
        why = "what the add-on's documents ask for; AWS keeps it in step with the agent"
        role = managed_role(self, "Role", pod_identity_principal(), why, POLICY)
        self.resource = ClusterAddon(
            self,
            "Addon",
            cluster=cluster,
            addon_name="amazon-cloudwatch-observability",
            version=version,
            configuration=None if logs else {"containerLogs": {"enabled": False}},
            roles={"cloudwatch-agent": role},
        ).resource
        self.node.default_child, self.role = self.resource, role
        for name in GROUPS if logs else (METRICS,):
            group = EndingLogGroup(
                self,
                name.capitalize(),
                log_group_name=f"/aws/containerinsights/{cluster_name}/{name}",
                days=days,
                encryption_key=encryption_key,
            )
            self.resource.node.add_dependency(group)
