"""A group of identical worker nodes: what its three kinds (EKS managed, EKS self-managed, k3s) have
in common.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, Protocol, TypedDict, Unpack

import jsii
from aws_cdk import Tags, Token
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct, IDependable

from constructs_lib.acknowledged import acknowledge
from constructs_lib.addresses import SSH_CLIENTS
from constructs_lib.ec2.machine import (
    SCALING_ACTIVITIES,
    launch_template,
    launch_template_of,
    mount_files,
    nodeadm_user_data,
    override,
    replace_one_by_one,
    report_machine_counts,
)
from constructs_lib.ec2.node_rules import (
    AMI_TYPES,
    MOST_NODES,
    TYPES,
    VOLUME_GIB,
    contradictions,
    default_desired,
    sizes,
    wrong_image,
    wrong_shape,
)
from constructs_lib.ec2.node_shape import PULL_THROUGHPUT, NodeShape
from constructs_lib.metrics import AUTO_SCALING, MetricOptions, metric
from constructs_lib.rules import Violation, refuse_text
from constructs_lib.storage.file_system import MountableFileSystem
from constructs_lib.storage.key_policy import allow_use
from constructs_lib.subnets import choose_subnets, closed_group, warn_of_isolation, zones_of
from constructs_lib.validation import check, drop_token, drop_tokens, is_token, refuse


def efa_group(scope: Construct, vpc: ec2.IVpc) -> ec2.SecurityGroup:
    """Creates the EFA adapters' security group: all traffic within the group, both ways, as the EFA
    documentation requires.
    """
    group = closed_group(scope, "Efa", vpc, "Fabric between the nodes")
    group.add_ingress_rule(group, ec2.Port.all_traffic(), "EFA within the group")
    group.add_egress_rule(group, ec2.Port.all_traffic(), "EFA within the group")
    acknowledge(group, "the source is the group itself", "NIST.800.53.R5-EC2RestrictedCommonPorts")
    return group


class NodesCluster(Protocol):
    """What a node needs to know of its cluster, EKS or self-managed."""

    @property
    def cluster_name(self) -> str: ...
    @property
    def cluster_security_group_id(self) -> str: ...


class NodeGroupProps(TypedDict, total=False):
    """What every kind of node group takes besides its cluster and VPC."""

    shape: NodeShape
    """Machine, disk, network and labels of each node."""
    min_size: int
    """Fewest nodes; 1 unless given."""
    desired_size: int
    """Nodes at the start; by default 3, within the limits, or `min_size` for GPUs."""
    max_size: int
    """Most nodes; by default 6, or `min_size` if that is more."""
    vpc_subnets: ec2.SubnetSelection | None
    """Where the nodes run; None: the private subnets."""
    security_groups: Sequence[ec2.ISecurityGroup]
    """Security groups besides the cluster's own, such as a file system's
    `client_security_group`.
    """
    file_system: MountableFileSystem | None
    """What the nodes mount, if their shape says where; they need its `client_security_group` and
    `mount_targets` as well.
    """
    encryption_key: kms.IKey | None
    """KMS key of the disks; None: the account's default key for EBS. An imported key's policy must
    let Auto Scaling use the key, as EncryptionKey's does.
    """
    extra_user_data: str | None
    """Lines of a bash script that each machine runs as root at boot, before its kubelet starts.
    `set -euo pipefail` holds: a line that fails ends the script.
    """
    environment: Mapping[str, str]
    """Variables of every service of the machines, such as HTTPS_PROXY."""
    certificates: str | None
    """Certificates in PEM that the machines trust beside the public ones."""
    depends_on: Sequence[IDependable]
    """What must exist before the first node, such as a file system's `mount_targets`."""


def _text(size: int) -> str:
    """Returns a number, which may be a token, as text."""
    return Token.as_string(size) if is_token(size) else str(size)


@jsii.implements(ec2.IConnectable, iam.IGrantable)
class NodeGroup(Construct):
    """Base of every kind of node group.

    Attributes:
        group_name: the group's name in EKS or Auto Scaling.
        launch_template: what each machine is launched from.
        role: the machines' role, which may serve other groups, too.
        sizes: fewest nodes, nodes at the start, most nodes.
    """

    group_name: str
    launch_template: ec2.LaunchTemplate
    role: iam.IRole
    _calls = "eks"
    """Which of the services in subnets.SERVICES the nodes call."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: NodesCluster,
        vpc: ec2.IVpc,
        **props: Unpack[NodeGroupProps],
    ) -> None:
        super().__init__(scope, id)
        self._cluster, self._vpc, self._props = cluster, vpc, props
        self.shape = props.get("shape") or NodeShape()
        for prop, value, kind in (
            ("shape", self.shape, "a NodeShape"),
            ("cluster", cluster, "a cluster's construct"),
        ):
            if isinstance(value, str | Mapping):
                refuse(self.node.path, [Violation(prop, value, f"allowed is {kind}")])
        if unknown := props.keys() - NodeGroupProps.__annotations__.keys():
            raise TypeError(f"{self.node.path} has no {', '.join(sorted(unknown))}")
        least = props.get("min_size", 1)
        # A limit that only the deploy knows does not set the default of another one.
        most = props.get("max_size", max(MOST_NODES, drop_token(least) or 0))
        limits = (drop_token(least) or 0, drop_token(most) or MOST_NODES)
        desired = props.get("desired_size", default_desired(*limits, self.shape.gpu))
        self.sizes = (least, desired, most)
        self._depends_on = props.get("depends_on", ())
        self._carried: list[ec2.ISecurityGroup] = []
        self._connections: ec2.Connections | None = None

    def _violations(self, *, managed: bool, image: str | None = None) -> Iterator[Violation]:
        """Yields the faults that cluster.yaml refuses, too, and those that only a construct's
        caller can make.
        """
        yield from sizes(*map(drop_token, self.sizes))
        shape, types = self.shape, self.shape.instance_types
        if isinstance(types, str):
            yield from refuse_text("instance_types", types, "m5.large")
            return
        for value in types:
            if not isinstance(value, str):
                kind = f"of {type(value).__name__}"
                yield Violation("instance_types", kind, "allowed is text such as m5.large")
                return
        if not is_token(types):
            yield from TYPES("instance_types", len(types))
        seen = replace(
            shape,
            instance_types=drop_tokens(types),
            volume_gib=VOLUME_GIB.least if is_token(shape.volume_gib) else shape.volume_gib,
            labels=dict(label for label in shape.labels.items() if not any(map(is_token, label))),
            taints=[t for t in shape.taints if not any(map(is_token, (t.key, t.value, t.effect)))],
        )
        yield from wrong_shape(seen, image)
        # Only the deploy knows whether a list with a token has one type.
        if len(seen.instance_types) < len(types):
            seen = replace(seen, capacity_block=False)
        zones = zones_of(self._subnets)
        count = None if zones is None else len(zones)
        yield from contradictions(seen, zones=count, managed=managed)
        if shape.mount_file_system and self._props.get("file_system") is None:
            allowed = "name what the nodes mount in file_system"
            yield Violation("mount_file_system", shape.mount_file_system, allowed)
        if shape.key_pair and not shape.ssh_from:
            allowed = "name who may connect in {ssh_from}"
            yield Violation("key_pair", shape.key_pair, allowed)
        yield from check(ssh_from=(SSH_CLIENTS, shape.ssh_from))

    def _validate(self, *, managed: bool, image: str | None = None) -> None:
        """Raises ValueError if there can be no such nodes. `image`: EKS's AMI type; None: the
        machine's image is for x86-64.
        """
        names = {field.name: f"shape.{field.name}" for field in fields(NodeShape)}
        refuse(
            self.node.path,
            self._violations(managed=managed, image=image),
            {**names, "availability_zones": "vpc_subnets"},
        )
        warn_of_isolation(self, self._vpc, self._subnets, self._calls)

    def _validate_image(self, ami_type: str | None, *, managed: bool) -> str:
        """Returns EKS's name for the nodes' image. Raises ValueError if there can be no such
        nodes.
        """
        gpu = self.shape.gpu
        image = ami_type or AMI_TYPES[gpu]
        refuse(self.node.path, wrong_image(image, gpu=gpu))
        self._validate(managed=managed, image=image)
        return image

    def _nodeadm_user_data(self, settings: dict[str, Any]) -> ec2.UserData:
        """Returns user data for a node of EKS, with nodeadm's `settings`."""
        return nodeadm_user_data(
            settings,
            self.shape,
            self._mount_files("kubelet.service"),
            self._props.get("extra_user_data"),
            self._props.get("environment"),
            self._props.get("certificates"),
        )

    def _mount_files(self, kubelet: str) -> dict[str, str]:
        """Returns the files of a node that mounts the file system before `kubelet`, its systemd
        unit, starts; empty: it mounts none.
        """
        file_system, folder = self._props.get("file_system"), self.shape.mount_file_system
        return mount_files(file_system, folder, kubelet) if file_system and folder else {}

    @cached_property
    def _subnets(self) -> Sequence[ec2.ISubnet]:
        return choose_subnets(self._vpc, self._props.get("vpc_subnets")).subnets or ()

    @property
    def _subnet_ids(self) -> list[str]:
        return [subnet.subnet_id for subnet in self._subnets]

    def _template(
        self,
        *,
        role: iam.IRole | None = None,
        image_id: str | None = None,
        user_data: ec2.UserData | None = None,
        metadata_hops: int = 1,
    ) -> ec2.LaunchTemplate:
        """Creates the launch template. For a managed group, EKS itself adds role, image and user
        data.
        """
        shape, home = self.shape, Construct(self, "Template")
        encryption_key = self._props.get("encryption_key")
        allow_use(encryption_key, "node volumes")
        groups = [
            ec2.SecurityGroup.from_security_group_id(
                home, "ClusterGroup", self._cluster.cluster_security_group_id
            ),
            *self._props.get("security_groups", ()),
        ]
        if shape.key_pair:
            groups.append(self._ssh_group(home))
        if shape.efa:
            groups.append(efa_group(home, self._vpc))
        template = launch_template(
            home,
            disk_gib=shape.volume_gib,
            encryption_key=encryption_key,
            key_pair=shape.key_pair,
            image_id=image_id,
            security_group=groups[0],
            role=role,
            user_data=user_data,
            metadata_hops=metadata_hops,
            throughput=PULL_THROUGHPUT if shape.parallel_image_pull else None,
        )
        if shape.placement_group:
            placement = ec2.CfnPlacementGroup(home, "Placement", strategy="cluster")
            override(template, "Placement", {"GroupName": placement.ref})
        self.launch_template, self._carried = template, groups[:1]
        for group in groups[1:]:
            self.add_security_group(group)
        if shape.efa:
            # In a template that names network interfaces, security groups belong to the interface.
            override(template, "SecurityGroupIds", None)
            self._carry_on_interfaces()
        if shape.capacity_reservation:
            target = {
                "CapacityReservationTarget": {"CapacityReservationId": shape.capacity_reservation}
            }
            override(template, "CapacityReservationSpecification", target)
        if shape.capacity_block:
            override(template, "InstanceMarketOptions", {"MarketType": "capacity-block"})
            override(template, "InstanceType", shape.instance_types[0])
        Tags.of(template).add("Name", f"{self._cluster.cluster_name}/{self.node.id}")
        return template

    def add_security_group(self, group: ec2.ISecurityGroup) -> None:
        """Puts the nodes into one more security group. AWS allows five for each network interface,
        unless a quota says otherwise.
        """
        self._carried.append(group)
        self.launch_template.add_security_group(group)
        if self.shape.efa:
            self._carry_on_interfaces()

    def _carry_on_interfaces(self) -> None:
        common = {
            "DeleteOnTermination": True,
            "Groups": [group.security_group_id for group in self._carried],
        }
        fabric = [
            {"NetworkCardIndex": card, "DeviceIndex": device, "InterfaceType": kind, **common}
            for card, device, kind in self.shape.interfaces
        ]
        override(self.launch_template, "NetworkInterfaces", fabric)

    @property
    def connections(self) -> ec2.Connections:
        """Network connections of this group's nodes alone. The first use makes a security group for
        them, because all groups of a cluster share the cluster's.
        """
        if self._connections is None:
            group = closed_group(self, "SecurityGroup", self._vpc, f"Nodes of {self.node.id}")
            self.add_security_group(group)
            self._connections = ec2.Connections(security_groups=[group])
        return self._connections

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The machines' role. On EKS, pods get rights by a `PodIdentity` of their own."""
        return self.role.grant_principal

    def _ssh_group(self, home: Construct) -> ec2.SecurityGroup:
        group = closed_group(home, "Ssh", self._vpc, "SSH to the nodes")
        for cidr in self.shape.ssh_from:
            group.add_ingress_rule(ec2.Peer.ipv4(cidr), ec2.Port.tcp(22), "SSH")
        return group

    def metric_in_service(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Returns how many machines are in service; the maximum over five minutes."""
        return self._metric("GroupInServiceInstances", **options)

    def metric_desired(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Returns how many machines there should be; the maximum over five minutes."""
        return self._metric("GroupDesiredCapacity", **options)

    def _metric(self, name: str, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        group = self.node.default_child
        if not isinstance(group, autoscaling.CfnAutoScalingGroup):
            raise TypeError(
                f"{self.node.path} has no metric {name}: EKS makes a managed group's Auto Scaling "
                "group, and CloudFormation does not know its name; use the cluster's "
                "metric_node_count"
            )
        # Auto Scaling counts only if it is asked to; that is free.
        report_machine_counts(group)
        dimensions = {"AutoScalingGroupName": group.ref}
        options.setdefault("statistic", "Maximum")
        return metric(AUTO_SCALING, name, dimensions, **options)

    def _scaling_group(
        self, template: ec2.LaunchTemplate, *, signals: bool = False, name: str | None = None
    ) -> autoscaling.CfnAutoScalingGroup:
        """Creates an Auto Scaling group. When the template changes, its machines are replaced one
        at a time.

        Args:
            signals: each machine signals CloudFormation when it is ready; the deploy fails if one
            does not. name: name of the group; None: CloudFormation generates one.
        """
        (least, desired, most), spot = self.sizes, self.shape.spot
        kind = autoscaling.CfnAutoScalingGroup
        group = kind(
            self,
            "Resource",
            auto_scaling_group_name=name,
            min_size=_text(least),
            desired_capacity=_text(desired),
            max_size=_text(most),
            vpc_zone_identifier=self._subnet_ids,
            capacity_rebalance=spot,
            health_check_type="EC2",
            health_check_grace_period=300,
            mixed_instances_policy=kind.MixedInstancesPolicyProperty(
                instances_distribution=kind.InstancesDistributionProperty(
                    on_demand_base_capacity=0,
                    on_demand_percentage_above_base_capacity=0 if spot else 100,
                    on_demand_allocation_strategy="prioritized",
                    spot_allocation_strategy="price-capacity-optimized",
                ),
                launch_template=kind.LaunchTemplateProperty(
                    launch_template_specification=launch_template_of(template),
                    overrides=[
                        kind.LaunchTemplateOverridesProperty(instance_type=instance_type)
                        for instance_type in self.shape.instance_types
                    ],
                ),
            ),
        )
        Tags.of(group).add(
            "Name", f"{self._cluster.cluster_name}/{self.node.id}", apply_to_launched_instances=True
        )
        # If only the deploy knows the limits, no machine has to stay in service.
        unknown = is_token(least) or is_token(most)
        kept = 0 if unknown else max(0, min(least, most - 1))
        awaited = desired if signals else None
        replace_one_by_one(group, min_in_service=kept, signals=awaited)
        acknowledge(
            group,
            "disks and IMDSv2 are settled in the launch template, which the rules do not follow "
            "into a mixed-instances policy",
            "AwsSolutions-EC26",
            "NIST.800.53.R5-EC2IMDSv2Enabled",
        )
        acknowledge(group, SCALING_ACTIVITIES, "AwsSolutions-AS3")
        self.group_name = group.ref
        return group
