"""What the nodes of EKS Auto Mode need in AWS; their NodeClasses and NodePools are Kubernetes
objects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.ec2.node_group import efa_group
from constructs_lib.ec2.node_rules import contradictions, wrong_shape
from constructs_lib.ec2.node_shape import NodeShape
from constructs_lib.subnets import choose_subnets
from constructs_lib.validation import refuse


class AutoModeNodes(Construct):
    """Placement groups, and the security group for EFA.

    >>> from aws_cdk import aws_iam as iam
    >>> role = iam.Role.from_role_name(stack, "Role", "vision-nodes")
    >>> shapes = {"workers": NodeShape(instance_types=["m7i.2xlarge"], placement_group=True)}
    >>> nodes = AutoModeNodes(stack, "Nodes", cluster=cluster, vpc=vpc, role=role, shapes=shapes)

    Args:
        cluster: the EKS cluster.
        vpc: the VPC.
        shapes: what a node is, by node group.
        role: the nodes' role, which is the cluster's `auto_mode_role`.
        security_groups: security groups besides the cluster's own, such as a file system's
            `client_security_group`.

    Attributes:
        machines: what charts make NodeClasses from, as JSON: role, subnets, security groups;
            placement groups by node group.

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
        role: iam.IRole,
        shapes: Mapping[str, NodeShape],
        security_groups: Sequence[ec2.ISecurityGroup] = (),
    ) -> None:
        super().__init__(scope, id)
        for name, shape in shapes.items():
            names = {field.name: f"shapes.{name}.{field.name}" for field in fields(NodeShape)}
            refuse(
                self.node.path,
                # EKS Auto Mode picks one zone itself.
                [*wrong_shape(shape, None), *contradictions(shape, zones=None, managed=True)],
                names,
            )
        groups = [
            cluster.cluster_security_group_id,
            *(group.security_group_id for group in security_groups),
        ]
        if any(shape.efa for shape in shapes.values()):
            groups.append(efa_group(self, vpc).security_group_id)
        placement_groups = {
            name: ec2.CfnPlacementGroup(self, name, strategy="cluster").ref
            for name in shapes
            if shapes[name].placement_group
        }
        subnets = [subnet.subnet_id for subnet in choose_subnets(vpc, None).subnets or ()]
        machines = {
            "role": role.role_name,
            "subnets": subnets,
            "securityGroups": groups,
            "placementGroups": placement_groups,
        }
        self.machines = Stack.of(self).to_json_string(machines)
