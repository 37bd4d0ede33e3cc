"""A managed group of worker nodes: EKS launches, drains, updates and repairs them."""

from collections.abc import Mapping
from typing import TypedDict, Unpack

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.ec2.machine import node_role
from constructs_lib.ec2.node_group import NodeGroup, NodeGroupProps
from constructs_lib.ec2.node_rules import EFFECTS


class ManagedNodesOptions(TypedDict, total=False):
    """What `eks.CfnNodegroup` takes and we do not decide; its documentation has the meanings."""

    force_update_enabled: bool
    nodegroup_name: str
    tags: Mapping[str, str]
    update_config: eks.CfnNodegroup.UpdateConfigProperty
    warm_pool_config: eks.CfnNodegroup.WarmPoolConfigProperty


class ManagedNodes(NodeGroup):
    """An EKS managed node group on Amazon Linux 2023.

    >>> ManagedNodes(stack, "Nodes", cluster=cluster, vpc=vpc, ami_type="AL2023_ARM_64_STANDARD")
    Traceback (most recent call last):
    ValueError: vision/Nodes: shape.instance_types is m5.large: AL2023_ARM_64_STANDARD is ...

    Args:
        cluster: the EKS cluster.
        vpc: the VPC.
        auto_repair: EKS replaces nodes that fail.
        kubernetes_version: the cluster's, such as "1.35"; None: that of the first deploy stays.
        release_version: of the image, such as 1.35.0-20261101; None: the newest whenever nodes are
            replaced. Changing either version drains and replaces the nodes one at a time;
            CloudFormation refuses it with any other change of the group.
        ami_type: EKS's name for the image, one of Amazon Linux 2023's, such as
            AL2023_ARM_64_STANDARD for arm types; None: by the shape's `gpu`, for x86-64.
        role: the nodes' role; None: one is made.
        options: passed to `eks.CfnNodegroup`.
        props: see `NodeGroupProps`.

    Raises:
        ValueError: a sentence for each value that is refused.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: eks.ICluster,
        vpc: ec2.IVpc,
        auto_repair: bool = True,
        kubernetes_version: str | None = None,
        release_version: str | None = None,
        role: iam.IRole | None = None,
        ami_type: str | None = None,
        options: ManagedNodesOptions | None = None,
        **props: Unpack[NodeGroupProps],
    ) -> None:
        super().__init__(scope, id, cluster=cluster, vpc=vpc, **props)
        image = self._validate_image(ami_type, managed=True)
        shape, (least, desired, most) = self.shape, self.sizes
        self.role = role or node_role(self, "Role")
        # EKS adds what a node needs to join.
        needed = shape.has_disks or shape.parallel_image_pull or shape.mount_file_system
        more = map(props.get, ("extra_user_data", "environment", "certificates"))
        user_data = self._nodeadm_user_data({}) if needed or any(more) else None
        template = self._template(user_data=user_data)
        self.resource = eks.CfnNodegroup(
            self,
            "Resource",
            cluster_name=cluster.cluster_name,
            node_role=self.role.role_arn,
            subnets=self._subnet_ids,
            ami_type=image,
            version=kubernetes_version,
            release_version=release_version,
            capacity_type="CAPACITY_BLOCK" if shape.capacity_block else shape.capacity,
            # For a Capacity Block, the launch template names the type.
            instance_types=None if shape.capacity_block else list(shape.instance_types),
            labels=shape.all_labels or None,
            taints=[
                eks.CfnNodegroup.TaintProperty(
                    key=taint.key, value=taint.value or None, effect=EFFECTS[taint.effect]
                )
                for taint in shape.all_taints
            ]
            or None,
            scaling_config=eks.CfnNodegroup.ScalingConfigProperty(
                min_size=least, desired_size=desired, max_size=most
            ),
            launch_template=eks.CfnNodegroup.LaunchTemplateSpecificationProperty(
                id=template.launch_template_id, version=template.latest_version_number
            ),
            node_repair_config=eks.CfnNodegroup.NodeRepairConfigProperty(enabled=auto_repair),
            **(options or {}),
        )
        self.resource.node.add_dependency(*self._depends_on)
        self.group_name = self.resource.attr_nodegroup_name
