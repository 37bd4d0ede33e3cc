"""The EFS CSI driver, with the rights that mounting an existing file system takes.

Promises: it reads what it needs to find mount targets; it makes and deletes nothing, because our volumes are static.
"""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.acknowledged import acknowledge, wildcards
from constructs_lib.addon import ClusterAddon
from constructs_lib.any_cluster import AnyCluster
from constructs_lib.pod_identity import pod_identity_principal


class EfsDriver(Construct):
    """The aws-efs-csi-driver add-on and its role.

    Args:
        cluster: the cluster.
        version: add-on version; None: EKS's default.

    Attributes:
        role: the driver's role.
        resource: the CloudFormation resource, to depend on.
    """

    def __init__(self, scope: Construct, id: str, *, cluster: AnyCluster, version: str | None = None) -> None:
        super().__init__(scope, id)
        self.role = iam.Role(self, "Role", assumed_by=pod_identity_principal())
        policy = iam.ManagedPolicy(self, "Policy", roles=[self.role], description="Finds file systems and their mount targets")
        policy.add_statements(finds_mount_targets("Find"))
        acknowledge(policy, "file systems are found by Describe, which reads names and no data", *wildcards(policy, "*"))
        self.resource = ClusterAddon(
            self,
            "Addon",
            cluster=cluster,
            addon_name="aws-efs-csi-driver",
            version=version,
            role=self.role,
            service_account="efs-csi-controller-sa",
        ).resource
        self.resource.node.add_dependency(policy)


def finds_mount_targets(sid: str) -> iam.PolicyStatement:
    """What the EFS driver asks to find file systems and their mount targets; it reads names and no data."""
    return iam.PolicyStatement(
        sid=sid,
        actions=[
            "elasticfilesystem:DescribeAccessPoints",
            "elasticfilesystem:DescribeFileSystems",
            "elasticfilesystem:DescribeMountTargets",
            "ec2:DescribeAvailabilityZones",
        ],
        resources=["*"],
    )
