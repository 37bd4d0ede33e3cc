"""The launch template of a group of nodes.

Promises: an encrypted disk that goes with its node; IMDSv2 only, one hop unless told otherwise, so that no pod takes the
node's role; the cluster's security group and those it is given, and no more; tags on the machine and its disk.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from constructs_lib.acknowledged import acknowledge
from constructs_lib.any_cluster import NodesCluster
from constructs_lib.key import open_to_node_volumes
from constructs_lib.node_shape import NodeShape


def root_disk(gib: int, encryption_key: kms.IKey | None) -> ec2.BlockDevice:
    """A machine's own disk, encrypted, which goes with it."""
    kind = ec2.EbsDeviceVolumeType.GP3
    volume = ec2.BlockDeviceVolume.ebs(gib, encrypted=True, kms_key=encryption_key, volume_type=kind, delete_on_termination=True)
    return ec2.BlockDevice(device_name="/dev/xvda", volume=volume)


class NodeTemplate(Construct):
    """A launch template for nodes of one shape.

    Args:
        cluster: the cluster.
        vpc: the cluster's VPC.
        shape: what a node is.
        security_groups: groups to carry beside the cluster's own.
        encryption_key: KMS key of the disk (the policy of one that is imported must let Auto Scaling use it, as EncryptionKey's
            does); None: the account's default key for EBS.
        role: instance role; None where EKS gives it (managed groups).
        image_id: None where EKS chooses it (managed groups).
        user_data: None where EKS writes it (managed groups).
        metadata_hops: how far the machine's metadata, and with them its role, reach: 1 ends at the machine, 2 at its pods.

    Attributes:
        template: the launch template.
        security_groups: what the nodes carry.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: NodesCluster,
        vpc: ec2.IVpc,
        shape: NodeShape,
        security_groups: Sequence[ec2.ISecurityGroup] = (),
        encryption_key: kms.IKey | None = None,
        role: iam.IRole | None = None,
        image_id: str | None = None,
        user_data: ec2.UserData | None = None,
        metadata_hops: int = 1,
    ) -> None:
        super().__init__(scope, id)
        if encryption_key:
            open_to_node_volumes(encryption_key)
        groups = [
            ec2.SecurityGroup.from_security_group_id(self, "ClusterGroup", cluster.cluster_security_group_id),
            *security_groups,
        ]
        if shape.key_pair:
            groups.append(self._ssh_group(vpc, shape))
        if shape.efa:
            groups.append(self._efa_group(vpc))
        template = ec2.LaunchTemplate(
            self,
            "Template",
            security_group=groups[0],
            block_devices=[root_disk(shape.volume_gib, encryption_key)],
            http_endpoint=True,
            http_tokens=ec2.LaunchTemplateHttpTokens.REQUIRED,
            http_put_response_hop_limit=metadata_hops,
            key_pair=ec2.KeyPair.from_key_pair_name(self, "KeyPair", shape.key_pair) if shape.key_pair else None,
            role=role,
            user_data=user_data,
        )
        for group in groups[1:]:
            template.add_security_group(group)
        resource = template.node.default_child
        assert isinstance(resource, ec2.CfnLaunchTemplate)
        data = "LaunchTemplateData."
        if image_id:
            resource.add_property_override(f"{data}ImageId", image_id)
        if shape.placement_group:
            placement = ec2.CfnPlacementGroup(self, "Placement", strategy="cluster")
            resource.add_property_override(f"{data}Placement", {"GroupName": placement.ref})
        if shape.efa:
            # Groups belong to the interface where a template names one.
            resource.add_property_deletion_override(f"{data}SecurityGroupIds")
            resource.add_property_override(
                f"{data}NetworkInterfaces",
                [
                    {
                        "DeviceIndex": 0,
                        "InterfaceType": "efa",
                        "DeleteOnTermination": True,
                        "Groups": [group.security_group_id for group in groups],
                    }
                ],
            )
        Tags.of(template).add("Name", f"{cluster.cluster_name}/{scope.node.id}")
        self.template = template
        self.security_groups = groups

    def _ssh_group(self, vpc: ec2.IVpc, shape: NodeShape) -> ec2.SecurityGroup:
        if not shape.ssh_from:
            raise ValueError(f"{self.node.path}: key_pair is {shape.key_pair} but ssh_from is empty: name who may connect")
        group = ec2.SecurityGroup(self, "Ssh", vpc=vpc, description="SSH to the nodes", allow_all_outbound=False)
        for cidr in shape.ssh_from:
            if cidr.endswith("/0"):
                raise ValueError(f"{self.node.path}: ssh_from is {cidr}: SSH is never opened to everybody")
            group.add_ingress_rule(ec2.Peer.ipv4(cidr), ec2.Port.tcp(22), "SSH")
        return group

    def _efa_group(self, vpc: ec2.IVpc) -> ec2.SecurityGroup:
        # EFA's documents: all traffic within the group, in both directions; nothing else passes an adapter's own protocol.
        group = ec2.SecurityGroup(self, "Efa", vpc=vpc, description="Fabric between the nodes", allow_all_outbound=False)
        group.add_ingress_rule(group, ec2.Port.all_traffic(), "EFA within the group")
        group.add_egress_rule(group, ec2.Port.all_traffic(), "EFA within the group")
        acknowledge(group, "the source is the group itself", "NIST.800.53.R5-EC2RestrictedCommonPorts")
        return group
