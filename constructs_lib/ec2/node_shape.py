"""What one node of a group is: machine, disk, network, and how Kubernetes sees it. The same for both kinds of groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

GPU_LABEL = "paddle-aws/gpu"
EFA_LABEL = "paddle-aws/efa"
GPU_TAINT = "nvidia.com/gpu"


@dataclass(frozen=True)
class NodeTaint:
    """Keeps pods away that do not tolerate it."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


@dataclass(frozen=True)
class NodeShape:
    """One node.

    Attributes:
        instance_types: EC2 types, in order of preference.
        spot: spare capacity, which AWS may take back with two minutes' notice.
        gpu: the NVIDIA image, label `paddle-aws/gpu=true` and taint `nvidia.com/gpu=true:NoSchedule`; Kubernetes sees the
            GPUs once NVIDIA's device plugin runs (docs/aws.md).
        volume_gib: size of the encrypted root volume, GiB.
        labels: Kubernetes labels.
        taints: Kubernetes taints.
        placement_group: close together in one zone.
        efa: an Elastic Fabric Adapter on the first network card, and label `paddle-aws/efa=true`.
        key_pair: EC2 key pair for SSH; None: Session Manager only.
        ssh_from: CIDRs that may connect to port 22.
    """

    instance_types: Sequence[str] = ("m5.large",)
    spot: bool = False
    gpu: bool = False
    volume_gib: int = 50
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[NodeTaint] = ()
    placement_group: bool = False
    efa: bool = False
    key_pair: str | None = None
    ssh_from: Sequence[str] = ()

    @property
    def all_labels(self) -> dict[str, str]:
        """The labels, with those by which the device plugins find their nodes."""
        ours = {GPU_LABEL: self.gpu, EFA_LABEL: self.efa}
        return {**self.labels, **{label: "true" for label, wanted in ours.items() if wanted}}

    @property
    def all_taints(self) -> tuple[NodeTaint, ...]:
        """The taints, with the one that `gpu` adds."""
        return (*self.taints, *((NodeTaint(GPU_TAINT, "true"),) if self.gpu else ()))
