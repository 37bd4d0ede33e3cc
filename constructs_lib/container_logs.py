"""Node metrics and, where wanted, container logs in CloudWatch, kept beyond the life of their pods.

Promises: the log groups are made here, encrypted and with an end, before the agent would make them without either; the
agent's rights come by Pod Identity, to its own service account.
"""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, managed_policies
from constructs_lib.addon import ClusterAddon
from constructs_lib.any_cluster import AnyCluster
from constructs_lib.log_group import EndingLogGroup
from constructs_lib.pod_identity import pod_identity_principal

POLICY = "CloudWatchAgentServerPolicy"
METRICS = "performance"
GROUPS = ("application", "dataplane", "host", METRICS)
"""What the agent writes: /aws/containerinsights/<cluster>/<group>. Metrics travel as events of a group of their own."""


class ContainerLogs(Construct):
    """The amazon-cloudwatch-observability add-on, its log groups and its role.

    Args:
        cluster: the cluster.
        cluster_name: its name as a plain string, for the names of the log groups.
        days: how long each event is kept.
        logs: also send what containers and nodes write; False: metrics alone.
        encryption_key: KMS key of the log groups; None: AWS's own.
        version: add-on version; None: EKS's default.

    Attributes:
        resource: the CloudFormation resource, to depend on.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: AnyCluster,
        cluster_name: str,
        days: int,
        logs: bool = True,
        encryption_key: kms.IKey | None = None,
        version: str | None = None,
    ) -> None:
        super().__init__(scope, id)
        role = iam.Role(
            self,
            "Role",
            assumed_by=pod_identity_principal(),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(POLICY)],
        )
        acknowledge(role, "what the add-on's documents ask for; AWS keeps it in step with the agent", *managed_policies(POLICY))
        self.resource = ClusterAddon(
            self,
            "Addon",
            cluster=cluster,
            addon_name="amazon-cloudwatch-observability",
            version=version,
            configuration=None if logs else {"containerLogs": {"enabled": False}},
            role=role,
            service_account="cloudwatch-agent",
        ).resource
        for name in GROUPS if logs else (METRICS,):
            group = EndingLogGroup(
                self,
                name.capitalize(),
                log_group_name=f"/aws/containerinsights/{cluster_name}/{name}",
                days=days,
                encryption_key=encryption_key,
            )
            self.resource.node.add_dependency(group)
