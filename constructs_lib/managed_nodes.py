"""A managed group of worker nodes: EKS launches, drains, updates and repairs them.

Promises: nodes in private subnets that carry the groups they need and no more (see node_template.py), started only when
what they mount can be mounted.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct, IDependable

from constructs_lib.any_cluster import AnyCluster
from constructs_lib.machine_role import node_role
from constructs_lib.node_shape import NodeShape
from constructs_lib.node_template import NodeTemplate
from constructs_lib.subnets import subnet_ids

_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}


class ManagedNodes(Construct):
    """An EKS managed node group on Amazon Linux 2023.

    Args:
        cluster: the cluster.
        vpc: the cluster's VPC.
        shape: what a node is.
        min_size: fewest nodes.
        desired_size: nodes at the start.
        max_size: most nodes.
        vpc_subnets: where the nodes lie; None: the private subnets.
        security_groups: groups to carry beside the cluster's own, such as a file system's `client_security_group`.
        encryption_key: KMS key of the disks; None: the account's default key for EBS.
        auto_repair: EKS replaces nodes that fail.
        role: the nodes' role; None: one is made.
        depends_on: what must be there before the first node, such as a file system's `mount_targets`.

    Attributes:
        resource: the CloudFormation resource, to depend on.
        role: the nodes' role.
        group_name: name of the group.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: AnyCluster,
        vpc: ec2.IVpc,
        shape: NodeShape | None = None,
        min_size: int = 1,
        desired_size: int = 3,
        max_size: int = 6,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] = (),
        encryption_key: kms.IKey | None = None,
        auto_repair: bool = True,
        role: iam.IRole | None = None,
        depends_on: Sequence[IDependable] = (),
    ) -> None:
        super().__init__(scope, id)
        shape = shape or NodeShape()
        self.role = role or node_role(self, "Role")
        template = NodeTemplate(
            self,
            "Template",
            cluster=cluster,
            vpc=vpc,
            shape=shape,
            security_groups=security_groups,
            encryption_key=encryption_key,
        ).template
        self.resource = eks.CfnNodegroup(
            self,
            "Resource",
            cluster_name=cluster.cluster_name,
            node_role=self.role.role_arn,
            subnets=list(subnet_ids(vpc, vpc_subnets)),
            ami_type="AL2023_x86_64_NVIDIA" if shape.gpu else "AL2023_x86_64_STANDARD",
            capacity_type="SPOT" if shape.spot else "ON_DEMAND",
            instance_types=list(shape.instance_types),
            labels=shape.all_labels or None,
            taints=[
                eks.CfnNodegroup.TaintProperty(key=taint.key, value=taint.value or None, effect=_EFFECTS[taint.effect])
                for taint in shape.all_taints
            ]
            or None,
            scaling_config=eks.CfnNodegroup.ScalingConfigProperty(
                min_size=min_size, desired_size=desired_size, max_size=max_size
            ),
            launch_template=eks.CfnNodegroup.LaunchTemplateSpecificationProperty(
                id=template.launch_template_id, version=template.latest_version_number
            ),
            node_repair_config=eks.CfnNodegroup.NodeRepairConfigProperty(enabled=auto_repair),
        )
        self.resource.node.add_dependency(*depends_on)
        self.group_name = self.resource.attr_nodegroup_name
