"""One node of a group: machine, disk, network, and how Kubernetes sees it. The same for all kinds
of groups.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

GPU_LABEL = "paddle-aws/gpu"
EFA_LABEL = "paddle-aws/efa"
MOUNT_LABEL = "paddle-aws/file-system"
"""Its value is the folder where the node mounts the file system, with dots for slashes."""
GPU_TAINT = "nvidia.com/gpu"
CAPACITY_LABEL = "eks.amazonaws.com/capacityType"
"""Label by which jobs choose between spot and on-demand nodes. EKS sets it only on nodes of its
managed groups; other groups set it themselves.
"""

PULL_THROUGHPUT = 600
"""MiB/s of the root volume below which pulling in parallel is slower, by AWS's notes on nodeadm's
FastImagePull.
"""

INSTANCE_TYPES: Any = json.loads(
    Path(__file__).with_name("instance_types.json").read_text(encoding="utf-8")
)
"""EC2's own data, which `make lock` reads. setting: family: sizes that support it, if not all do;
`efa_cards`: first and last network card with an EFA, for types with several; `disks`: families with
disks of their own; `gpus`: NVIDIA GPUs by type.
"""


@dataclass(frozen=True)
class NodeTaint:
    """A taint: keeps away pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


@dataclass(frozen=True)
class NodeShape:
    """One node.

    Example:

    >>> NodeShape(instance_types=["m7i.2xlarge"], spot=True).spot
    True

    Attributes:
        instance_types: EC2 types, in order of preference.
        spot: spare capacity, which AWS may take back with two minutes' notice.
        gpu: the NVIDIA image, label `paddle-aws/gpu=true` and taint
            `nvidia.com/gpu=true:NoSchedule`; Kubernetes sees the GPUs once NVIDIA's device plugin
            runs (docs/aws.md).
        volume_gib: size of the encrypted root volume, GiB.
        parallel_image_pull: pulls and unpacks an image's layers in parallel (nodeadm's
            FastImagePull), on a root volume of `PULL_THROUGHPUT`; EKS on Amazon Linux 2023 only.
        labels: Kubernetes labels.
        taints: Kubernetes taints.
        placement_group: places the nodes close together in one zone.
        efa: an Elastic Fabric Adapter on each network card that takes one, and label
            `paddle-aws/efa=true`.
        capacity_reservation: id of the reservation, On-Demand or Capacity Block, that supplies the
            nodes.
        capacity_block: whether that reservation is a Capacity Block.
        mount_file_system: folder where the node mounts the group's file system before its kubelet
            starts, and label `paddle-aws/file-system`; None: it mounts none.
        key_pair: EC2 key pair for SSH; None: Session Manager only.
        ssh_from: CIDRs that may connect to port 22.
    """

    instance_types: Sequence[str] = ("m5.large",)
    spot: bool = False
    gpu: bool = False
    volume_gib: int = 50
    parallel_image_pull: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[NodeTaint] = ()
    placement_group: bool = False
    efa: bool = False
    capacity_reservation: str | None = None
    capacity_block: bool = False
    mount_file_system: str | None = None
    key_pair: str | None = None
    ssh_from: Sequence[str] = ()

    @property
    def all_labels(self) -> dict[str, str]:
        """All labels, including those by which device plugins and volumes find their nodes."""
        ours = {GPU_LABEL: "true" if self.gpu else "", EFA_LABEL: "true" if self.efa else ""}
        if self.mount_file_system:
            ours[MOUNT_LABEL] = self.mount_file_system.strip("/").replace("/", ".")
        return {**self.labels, **{label: value for label, value in ours.items() if value}}

    @property
    def capacity(self) -> str:
        """EKS's word for the kind of capacity, unless that is a Capacity Block."""
        return "SPOT" if self.spot else "ON_DEMAND"

    @property
    def joining_labels(self) -> dict[str, str]:
        """`all_labels`, and the capacity's, for a node that joins without EKS's help."""
        return {**self.all_labels, CAPACITY_LABEL: self.capacity}

    @property
    def kubelet_labels(self) -> list[str]:
        """`joining_labels`, as a kubelet takes them."""
        return [f"{key}={value}" for key, value in sorted(self.joining_labels.items())]

    @property
    def kubelet_taints(self) -> list[str]:
        """`all_taints`, as a kubelet takes them."""
        return [f"{taint.key}={taint.value}:{taint.effect}" for taint in self.all_taints]

    @property
    def all_taints(self) -> tuple[NodeTaint, ...]:
        """All taints, including the one that `gpu` adds."""
        return (*self.taints, *((NodeTaint(GPU_TAINT, "true"),) if self.gpu else ()))

    @property
    def has_disks(self) -> bool:
        """Whether every type has disks of its own (instance store), which then hold the pods'
        scratch.
        """
        return all(
            name.partition(".")[0] in INSTANCE_TYPES["disks"] for name in self.instance_types
        )

    @property
    def interfaces(self) -> list[tuple[int, int, str]]:
        """Network interfaces of a machine with EFA, as (card, device, type): EKS's layout, with one
        address for all of them.

        Raises ValueError unless all types have their adapters on the same cards.
        """
        first, last = efa_cards(self.instance_types)
        return [(0, 0, "efa")] if first == last else self.split_interfaces

    @property
    def split_interfaces(self) -> list[tuple[int, int, str]]:
        """The same, with an interface of its own for addresses even where there is one card, as
        EKS Auto Mode wants.
        """
        first, last = efa_cards(self.instance_types)
        fabric = [(card, 0 if card else 1, "efa-only") for card in range(first, last + 1)]
        return [(0, 0, "interface"), *fabric]


def efa_cards(instance_types: Sequence[str]) -> tuple[int, int]:
    """Returns the first and last network card with an EFA. Raises ValueError if the types
    differ.
    """
    cards = {tuple(INSTANCE_TYPES["efa_cards"].get(name, (0, 0))) for name in instance_types}
    if len(cards) > 1:
        raise ValueError(
            "their adapters are on different network cards, and one launch template names the "
            "cards for all"
        )
    first, last = cards.pop()
    return first, last
