"""cluster.yaml's `nodes`: groups of equal machines. Imports no aws_cdk."""

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from constructs_lib.ec2.node_shape import INSTANCE_TYPES, NodeShape, efa_cards
from paddle_aws.settings.model import Fault, Refused, Settings
from paddle_aws.stacks.network_settings import SshRanges, ZoneNames, once

GPU_TYPE = re.compile(r"(g4dn|g5|g[6-9][a-z]*|gr\d[a-z]*|p[4-9][a-z]*(-[a-z0-9]+)?)\.[a-z0-9-]+")
"""NVIDIA machines that the Amazon Linux 2023 NVIDIA image supports (EKS user guide); g4ad is AMD's,
g5g is arm.
"""
ARM_TYPE = re.compile(r"(a1|[a-z]+\d+[a-z]*g[a-z]*)\..+")
XEN_TYPE = re.compile(r"(c[134]|d2|f1|g2|g3s?|h1|i[23]|m[1-4]|p[23]|r[34]|t[12]|x1e?)\.(?!metal).+")
"""Machines before Nitro: those with hypervisor xen in the VPC CNI's table of types, and g2, g3 and
p2, which it no longer has.
"""

_SIZE = re.compile(r"[^.]+\.(?:(nano|micro|small|medium|large)|(?:metal-)?(\d*)xl(?:arge)?)")


def most_vcpus(instance_type: str) -> int | None:
    """Returns the most vCPUs that the name allows: 2 up to large, 4 for each xlarge. None: the name
    does not tell (metal).
    """
    size = _SIZE.fullmatch(instance_type)
    return None if size is None else 2 if size[1] else 4 * int(size[2] or 1)


LabelName = Annotated[
    str,
    Field(
        pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$",
        examples=["example.com/team"],
    ),
]
LabelValue = Annotated[
    str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$", examples=["vision"])
]


_SYSTEM = "bin|boot|dev|etc|lib|lib64|opt|proc|run|sbin|sys|tmp|usr|var"


def _mountable(value: str | None) -> str | None:
    if value and re.match(rf"/(({_SYSTEM})(/|$)|(home|mnt|root|srv)$)", value):
        raise Refused(
            "", value, "that is the system's: allowed is a folder of its own, such as /mnt/efs"
        )
    return value


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


class NodeGroup(Settings):
    """One group of equal nodes."""

    kind: Literal["managed", "self-managed"] = "managed"
    """managed: EKS runs the group. self-managed: an Auto Scaling group of your own."""
    instance_types: Annotated[list[str], once("instance type")] = Field(
        default=["m5.large"], min_length=1, max_length=20
    )
    """EC2 instance types, in order of preference."""
    min: int = Field(default=1, ge=0)
    """Fewest nodes."""
    desired: int = Field(default=3, ge=0)
    """Nodes at the start."""
    max: int = Field(default=6, ge=1)
    """Most nodes; with compute fixed, for an autoscaler of yours."""
    spot: bool = False
    """Cheaper spare capacity, which AWS may take back with two minutes' notice."""
    gpu: bool = False
    """NVIDIA image, label paddle-aws/gpu=true, and taint nvidia.com/gpu=true:NoSchedule."""
    volume_gib: int = Field(default=50, ge=20, le=16384)
    """Root volume of each node, GiB."""
    availability_zones: ZoneNames = Field(default=[])
    """Zones of the nodes; empty: all. Traffic between zones costs money."""
    labels: dict[LabelName, LabelValue] = Field(default={})
    """Kubernetes labels."""
    taints: Annotated[list[Taint], once("taint", lambda taint: f"{taint.key}:{taint.effect}")] = (
        Field(default=[], max_length=50)
    )
    """Kubernetes taints."""
    placement_group: bool = False
    """Place nodes close together in one zone."""
    efa: bool = False
    """An Elastic Fabric Adapter on each network card that takes one."""
    capacity_reservation: str | None = Field(
        default=None, pattern="^cr-[0-9a-f]{8,17}$", examples=["cr-0123456789abcdef0"]
    )
    """Take the nodes from this reservation, an On-Demand one or a Capacity Block."""
    capacity_block: bool = False
    """The reservation is a Capacity Block: set `desired` 0 before it begins, and after it has
    ended.
    """
    mount_file_system: Annotated[str | None, AfterValidator(_mountable)] = Field(
        default=None,
        max_length=64,
        pattern=r"^(/[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?)+$",
        examples=["/home/admin/efs"],
    )
    """Mount the file system at this folder of each node, over TLS, before it takes pods: for jobs
    with `volume.kind: host-path`.
    """
    auto_repair: bool | None = None
    """Replace nodes that fail; unset: on for managed groups. Self-managed ones follow EC2's
    checks.
    """
    ssh: Ssh | None = None
    """SSH, beside Session Manager; unset: none."""

    @field_validator("instance_types")
    @classmethod
    def _types(cls, types: list[str]) -> list[str]:
        for value in types:
            if not re.fullmatch(r"[a-z][a-z0-9-]*\.[a-z0-9-]+", value):
                raise Refused("", value, "allowed are EC2 instance types such as m5.large")
            if ARM_TYPE.fullmatch(value):
                raise Refused("", value, "the trainer image is for x86-64, and this type is arm")
        return types

    @field_validator("labels")
    @classmethod
    def _labels(cls, labels: dict[str, str]) -> dict[str, str]:
        for key in labels:
            reserved = re.match(r"(?:.+\.)?(kubernetes\.io|k8s\.io|eks\.amazonaws\.com)/", key)
            if reserved and not re.match(r"(.+\.)?(node|kubelet)\.kubernetes\.io/", key):
                raise Refused(
                    key,
                    labels[key],
                    f"kubelets may not set labels of {reserved[1]}; use a domain of your own",
                )
        return labels

    def _faults(self) -> Iterator[Fault]:
        if self.min > self.max:
            yield Refused("min", self.min, f"allowed is 0 to {{here}}max ({self.max})")
        elif not self.min <= self.desired <= self.max:
            yield Refused(
                "desired",
                self.desired,
                f"allowed is {{here}}min ({self.min}) to {{here}}max ({self.max})",
            )
        for value in self.instance_types:
            if self.gpu and not GPU_TYPE.fullmatch(value):
                yield Refused(
                    "instance_types",
                    value,
                    "{here}gpu is true: allowed are NVIDIA types such as g5.xlarge",
                )
            if not self.gpu and GPU_TYPE.fullmatch(value):
                yield Refused(
                    "instance_types",
                    value,
                    "its GPUs would lie idle: set {here}gpu true, or take another type",
                )
        for field, lack, example in (
            ("efa", "it has no Elastic Fabric Adapter", "c5n.18xlarge"),
            ("placement_group", "EC2 takes none of its family into one", "m5.large"),
            ("capacity_reservation", "", ""),
        ):
            if not (found := getattr(self, field)):
                continue
            if len(self.availability_zones) != 1:
                yield Refused(
                    field,
                    found,
                    "it works within one zone: name exactly one in {here}availability_zones",
                )
            for value in self.instance_types if lack else ():
                family, _, size = value.partition(".")
                sizes = INSTANCE_TYPES[field].get(family, [size])
                if size not in sizes:
                    like = (
                        ", ".join(f"{family}.{one}" for one in sizes) or f"types such as {example}"
                    )
                    yield Refused(
                        "instance_types",
                        value,
                        f"{{here}}{field} is true, and {lack}: allowed are {like}",
                    )
        if self.efa:
            try:
                efa_cards(self.instance_types)
            except ValueError as error:
                yield Refused(
                    "instance_types",
                    ", ".join(self.instance_types),
                    f"{{here}}efa is true, and {error}",
                )
        if self.spot and self.capacity_reservation:
            yield Refused(
                "spot",
                True,
                "nodes from {here}capacity_reservation are not spare: leave one of the two out",
            )
        if self.capacity_block and not (
            self.capacity_reservation and self.kind == "managed" and len(self.instance_types) == 1
        ):
            yield Refused(
                "capacity_block",
                True,
                "it wants {here}capacity_reservation, kind managed and exactly one instance type",
            )
        if self.gpu and any(
            (taint.key, taint.effect) == ("nvidia.com/gpu", "NoSchedule") for taint in self.taints
        ):
            yield Refused(
                "taints", "nvidia.com/gpu:NoSchedule", "{here}gpu adds it already: leave it out"
            )
        if self.auto_repair and self.kind == "self-managed":
            yield Refused(
                "auto_repair",
                True,
                "allowed with {here}kind managed only; an Auto Scaling group checks on its own",
            )

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
