"""A managed group of worker nodes.

Promises: nodes in private subnets that carry the groups they need and no more, encrypted disks, IMDSv2 only with no way
in for pods, Session Manager instead of SSH, and repair of nodes that fail.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct, IDependable

from constructs_lib.any_cluster import AnyCluster
from constructs_lib.node_role import node_role
from constructs_lib.subnets import subnet_ids


class ManagedNodes(Construct):
    """An EKS managed node group on Amazon Linux 2023.

    Args:
        scope: parent.
        id: construct id.
        cluster: the cluster.
        vpc: the cluster's VPC.
        instance_types: in order of preference.
        min_size: fewest nodes.
        desired_size: nodes at the start.
        max_size: most nodes.
        volume_gib: size of each root volume, GiB.
        vpc_subnets: where the nodes lie; None: the private subnets.
        security_groups: groups to carry beside the cluster's own, such as a file system's `client_security_group`.
        role: the nodes' role; None: one is made.
        depends_on: what must be there before the first node, such as a file system's `mount_targets`.

    Attributes:
        resource: the CloudFormation resource, to depend on.
        role: the nodes' role.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: AnyCluster,
        vpc: ec2.IVpc,
        instance_types: Sequence[str] = ("m5.large",),
        min_size: int = 1,
        desired_size: int = 3,
        max_size: int = 6,
        volume_gib: int = 50,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] = (),
        role: iam.IRole | None = None,
        depends_on: Sequence[IDependable] = (),
    ) -> None:
        super().__init__(scope, id)
        self.role = role or node_role(self, "Role")
        template = ec2.CfnLaunchTemplate(
            self,
            "LaunchTemplate",
            launch_template_data=ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(
                security_group_ids=[cluster.cluster_security_group_id, *(g.security_group_id for g in security_groups)],
                block_device_mappings=[
                    ec2.CfnLaunchTemplate.BlockDeviceMappingProperty(
                        device_name="/dev/xvda",
                        ebs=ec2.CfnLaunchTemplate.EbsProperty(
                            volume_size=volume_gib, volume_type="gp3", encrypted=True, delete_on_termination=True
                        ),
                    )
                ],
                metadata_options=ec2.CfnLaunchTemplate.MetadataOptionsProperty(
                    # One hop ends at the node: a pod cannot take the node's role.
                    http_tokens="required",
                    http_put_response_hop_limit=1,
                ),
                tag_specifications=[
                    ec2.CfnLaunchTemplate.TagSpecificationProperty(
                        resource_type=kind,
                        tags=[{"key": "Name", "value": self.node.path}],
                    )
                    for kind in ("instance", "volume")
                ],
            ),
        )
        self.resource = eks.CfnNodegroup(
            self,
            "Resource",
            cluster_name=cluster.cluster_name,
            node_role=self.role.role_arn,
            subnets=subnet_ids(vpc, vpc_subnets),
            ami_type="AL2023_x86_64_STANDARD",
            instance_types=list(instance_types),
            scaling_config=eks.CfnNodegroup.ScalingConfigProperty(
                min_size=min_size, desired_size=desired_size, max_size=max_size
            ),
            launch_template=eks.CfnNodegroup.LaunchTemplateSpecificationProperty(
                id=template.ref, version=template.attr_latest_version_number
            ),
            node_repair_config=eks.CfnNodegroup.NodeRepairConfigProperty(enabled=True),
        )
        self.resource.node.add_dependency(self.role, *depends_on)
        Tags.of(self.resource).add("Name", self.node.path)
