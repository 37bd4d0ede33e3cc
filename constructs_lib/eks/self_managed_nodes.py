"""A self-managed group of EKS worker nodes: an Auto Scaling group whose machines join with nodeadm
and an access entry.
"""

from typing import Any, Unpack

from aws_cdk import Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from constructs_lib.ec2.machine import node_role
from constructs_lib.ec2.node_group import NodeGroup, NodeGroupProps
from constructs_lib.ec2.node_rules import IMAGE
from constructs_lib.ec2.node_shape import NodeShape


class SelfManagedNodeRole(Construct):
    """A node role that the cluster admits, as EKS itself arranges for managed groups. One role
    serves many groups.

    Args:
        cluster: the EKS cluster.
    """

    def __init__(self, scope: Construct, id: str, *, cluster: eks.ICluster) -> None:
        super().__init__(scope, id)
        self.role = node_role(self, "Role")
        self.node.default_child = self.role.node.default_child
        eks.CfnAccessEntry(
            self,
            "AccessEntry",
            cluster_name=cluster.cluster_name,
            principal_arn=self.role.role_arn,
            type="EC2_LINUX",
        )


class SelfManagedNodes(NodeGroup):
    """An Auto Scaling group of nodes on Amazon Linux 2023.

    >>> nodes = SelfManagedNodes(
    ...     stack, "Nodes", cluster=cluster, vpc=vpc, kubernetes_version="1.36", max_size=9
    ... )
    >>> nodes.resource.max_size
    '9'

    Args:
        cluster: the EKS cluster.
        vpc: the VPC.
        service_ipv4_cidr: addresses of Kubernetes services, as the cluster has them.
        kubernetes_version: the cluster's, such as "1.35": the nodes' image follows it.
        role: the nodes' role, from a `SelfManagedNodeRole`; None: one is made.
        ami_type: as `ManagedNodes` has it.
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
        kubernetes_version: str,
        service_ipv4_cidr: str = "172.20.0.0/16",
        role: SelfManagedNodeRole | None = None,
        ami_type: str | None = None,
        **props: Unpack[NodeGroupProps],
    ) -> None:
        super().__init__(scope, id, cluster=cluster, vpc=vpc, **props)
        image = self._validate_image(ami_type, managed=False)
        joining = role or SelfManagedNodeRole(self, "Joining", cluster=cluster)
        self.role = joining.role
        # AL2023_ARM_64_STANDARD is arm64/standard in Parameter Store.
        machine, kind = IMAGE.fullmatch(image).groups()  # type: ignore[union-attr]
        folder = f"{'arm64' if machine == 'ARM_64' else machine}/{kind.lower()}"
        family = f"/aws/service/eks/optimized-ami/{kubernetes_version}/amazon-linux-2023/{folder}"
        template = self._template(
            role=self.role,
            # EC2 resolves the image when it launches a node: no look-up at synth, and always the
            # newest patch.
            image_id=f"resolve:ssm:{family}/recommended/image_id",
            user_data=self._nodeadm_user_data(_node_config(cluster, service_ipv4_cidr, self.shape)),
        )
        self.resource = self._scaling_group(template)
        # The cluster's controllers recognize their machines by this tag, whose key contains the
        # cluster's name.
        Tags.of(self.resource).add(
            f"kubernetes.io/cluster/{cluster.cluster_name}",
            "owned",
            apply_to_launched_instances=True,
        )
        self.resource.node.add_dependency(joining, *self._depends_on)


def _node_config(cluster: eks.ICluster, service_ipv4_cidr: str, shape: NodeShape) -> dict[str, Any]:
    flags = [f"--node-labels={','.join(shape.kubelet_labels)}"]
    if taints := shape.kubelet_taints:
        flags.append(f"--register-with-taints={','.join(taints)}")
    joining = {
        "name": cluster.cluster_name,
        "apiServerEndpoint": cluster.cluster_endpoint,
        "certificateAuthority": cluster.cluster_certificate_authority_data,
        "cidr": service_ipv4_cidr,
    }
    return {"cluster": joining, "kubelet": {"flags": flags}}
