"""cluster.yaml's `nodes`: groups of equal machines. Imports no aws_cdk."""

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated, Literal

from pydantic import Field, field_validator

from constructs_lib.ec2.node_rules import (
    LABEL_NAME,
    LABEL_VALUE,
    MOST_NODES,
    MOUNT_FOLDER,
    RESERVATION,
    TAINTS,
    TYPES,
    VOLUME_GIB,
    contradictions,
    default_desired,
    reserved_labels,
    sizes,
    system_folder,
    wrong_types,
)
from constructs_lib.ec2.node_shape import INSTANCE_TYPES, NodeShape
from paddle_aws.stacks.conditions import EKS, FIXED, MANAGED, MOUNTED
from paddle_aws.stacks.network_settings import SshRanges, ZoneNames, require_unique
from paddle_aws.stacks.rule_settings import apply_rule, translate_violation
from paddle_settings.model import Fault, Refused, Settings, check

_SIZE = re.compile(r"[^.]+\.(?:(nano|micro|small|medium|large)|(?:metal-)?(\d*)xl(?:arge)?)")


def most_vcpus(instance_type: str) -> int | None:
    """Returns the most vCPUs that the name allows: 2 up to large, 4 for each xlarge. None: the name
    does not tell (metal).
    """
    size = _SIZE.fullmatch(instance_type)
    return None if size is None else 2 if size[1] else 4 * int(size[2] or 1)


LabelName = Annotated[str, Field(pattern=LABEL_NAME.pattern, examples=[LABEL_NAME.example])]
LabelValue = Annotated[str, Field(pattern=LABEL_VALUE.pattern, examples=[LABEL_VALUE.example])]


class Taint(Settings):
    """Keeps pods away that do not tolerate it."""

    key: LabelName
    """Its key."""
    value: LabelValue = ""
    """Its value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    """What happens to a pod that does not tolerate it."""


class Ssh(Settings):
    """SSH to the nodes, beside Session Manager, which is always on."""

    key_pair: str = Field(min_length=1, max_length=255)
    """Name of an EC2 key pair."""
    allowed_from: SshRanges
    """CIDRs that may connect to port 22."""


NAMES = {"min_size": "min", "desired_size": "desired", "max_size": "max"}
"""The settings that the rules call by another name."""


class NodeGroup(Settings):
    """One group of equal nodes."""

    kind: Annotated[Literal["managed", "self-managed"], EKS, FIXED] = "managed"
    """managed: EKS runs the group. self-managed: an Auto Scaling group of your own."""
    instance_types: Annotated[
        list[str], require_unique("instance type"), apply_rule(wrong_types)
    ] = Field(default=["m5.large"], min_length=TYPES.least, max_length=TYPES.most)
    """EC2 instance types, in order of preference."""
    gpu: Annotated[bool, EKS] = False
    """NVIDIA image, label paddle-aws/gpu=true, and taint nvidia.com/gpu=true:NoSchedule."""
    min: Annotated[int, FIXED] = Field(default=1, ge=0)
    """Fewest nodes."""
    max: int = Field(default=MOST_NODES, ge=1)
    """Most nodes. With `compute: fixed`, only an autoscaler of yours starts more than `desired`."""
    desired: Annotated[int, FIXED] = Field(
        default_factory=lambda group: default_desired(
            group.get("min", 1), group.get("max", MOST_NODES), group.get("gpu", False)
        ),
        ge=0,
    )
    """Nodes at the start; unset: 3, within `min` and `max`, or `min` with `gpu`."""
    spot: bool = False
    """Cheaper spare capacity, which AWS may take back with two minutes' notice."""
    volume_gib: int = Field(default=50, ge=VOLUME_GIB.least, le=VOLUME_GIB.most)
    """Root volume of each node, GiB."""
    parallel_image_pull: Annotated[bool, EKS, FIXED] = False
    """Pull and unpack the layers of an image in parallel, on a faster root volume: for images of
    several GB on new nodes.
    """
    availability_zones: ZoneNames = Field(default=[])
    """Zones of the nodes; empty: all. Traffic between zones costs money."""
    labels: dict[LabelName, LabelValue] = Field(default={})
    """Kubernetes labels."""
    taints: Annotated[
        list[Taint], require_unique("taint", lambda taint: f"{taint.key}:{taint.effect}")
    ] = Field(default=[], max_length=TAINTS.most)
    """Kubernetes taints."""
    placement_group: bool = False
    """Place nodes close together in one zone."""
    efa: Annotated[bool, EKS] = False
    """An Elastic Fabric Adapter on each network card that takes one."""
    capacity_reservation: str | None = Field(
        default=None, pattern=RESERVATION.pattern, examples=[RESERVATION.example]
    )
    """Take the nodes from this reservation, an On-Demand one or a Capacity Block."""
    capacity_block: Annotated[bool, EKS] = False
    """The reservation is a Capacity Block: set `desired` to 0 until it begins and after it has
    ended.
    """
    mount_file_system: Annotated[str | None, apply_rule(system_folder), MOUNTED] = Field(
        default=None,
        max_length=64,
        pattern=MOUNT_FOLDER.pattern,
        examples=["/home/admin/efs"],
    )
    """Folder where each node mounts the file system, over TLS, before it takes pods: for jobs with
    `volume.kind: host-path`.
    """
    auto_repair: Annotated[bool | None, EKS, FIXED, MANAGED] = None
    """Replace nodes that fail; unset: true for managed groups without `gpu`. EC2's checks decide in
    self-managed groups.
    """
    ssh: Annotated[Ssh | None, FIXED] = None
    """SSH, beside Session Manager; unset: none."""

    @field_validator("labels")
    @classmethod
    def _labels(cls, labels: dict[str, str]) -> dict[str, str]:
        for violation in reserved_labels(labels):
            raise Refused(violation.prop.partition(".")[2], violation.value, violation.allowed)
        return labels

    def _faults(self) -> Iterator[Fault]:
        yield from check(self._sizes, self._contradictions, self._repair)

    def _sizes(self) -> Iterator[Fault]:
        for violation in sizes(self.min, self.desired, self.max):
            yield translate_violation(violation, NAMES)

    def _contradictions(self) -> Iterator[Fault]:
        zones, managed = len(self.availability_zones), self.kind == "managed"
        for violation in contradictions(self, zones=zones, managed=managed):
            yield translate_violation(violation, NAMES)

    def _repair(self) -> Iterator[Fault]:
        if self.auto_repair and self.gpu and self.kind == "managed":
            # aws/eks-node-monitoring-agent: its DCGM tolerates no taint, and EKS replaces a node
            # whose GPUs it has not seen for ten minutes.
            yield Refused(
                "auto_repair",
                True,
                "allowed without {here}gpu only: EKS would replace each of these nodes after ten "
                "minutes, because its agent sees no GPU behind their taint",
            )

    @property
    def repairs(self) -> bool:
        """Whether EKS replaces nodes that fail."""
        return self.kind == "managed" and not self.gpu and self.auto_repair is not False

    @property
    def shape(self) -> NodeShape:
        """The group's settings in the form that constructs take."""
        return NodeShape(
            **{
                field.name: getattr(self, field.name)
                for field in fields(NodeShape)
                if field.name in type(self).model_fields
            },
            key_pair=self.ssh.key_pair if self.ssh else None,
            ssh_from=self.ssh.allowed_from if self.ssh else (),
        )

    @property
    def gpus(self) -> int:
        """The fewest GPUs that a machine of the group has."""
        return (
            min(INSTANCE_TYPES["gpus"].get(name, 0) for name in self.instance_types)
            if self.gpu
            else 0
        )

    @property
    def repels(self) -> bool:
        """Whether the nodes accept only pods that tolerate a taint."""
        return self.gpu or any(taint.effect != "PreferNoSchedule" for taint in self.taints)
