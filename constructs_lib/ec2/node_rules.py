"""Which nodes there can be: rules about a group's machines, sizes, labels and zones. Imports no
aws_cdk.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from constructs_lib.ec2.node_shape import GPU_TAINT, INSTANCE_TYPES, NodeShape, efa_cards
from constructs_lib.rules import Text, Violation, WholeNumbers, duplicates, refuse_text

GPU_TYPE = re.compile(r"(g4dn|g5|g[6-9][a-z]*|gr\d[a-z]*|p[4-9][a-z]*(-[a-z0-9]+)?)\.[a-z0-9-]+")
"""NVIDIA machines that the Amazon Linux 2023 NVIDIA image supports (EKS user guide); g4ad is AMD's,
g5g is arm.
"""
ARM_TYPE = re.compile(r"(a1|[a-z]+\d+[a-z]*g[a-z]*|p\d+e-gb\d+)\..+")
ARM_GPU_TYPE = re.compile(r"(g\d+g|p\d+e-gb\d+)\..+")
"""NVIDIA machines with arm processors: g5g, p6e-gb200, ..."""
XEN_TYPE = re.compile(r"(c[134]|d2|f1|g2|g3s?|h1|i[23]|m[1-4]|p[23]|r[34]|t[12]|x1e?)\.(?!metal).+")
"""Machines before Nitro: those with hypervisor xen in the VPC CNI's table of types, and g2, g3 and
p2, which it no longer has.
"""
SMALL_TYPE = re.compile(r".+\.(nano|micro|small|medium|large)")
"""Machines of fewer than 4 vCPUs."""
IMAGE = re.compile("AL2023_(x86_64|ARM_64)_([A-Z]+)")
"""EKS's AMI types of Amazon Linux 2023: machine and kind."""
AMI_TYPES = {False: "AL2023_x86_64_STANDARD", True: "AL2023_x86_64_NVIDIA"}
"""EKS's names for the image, without and with GPUs."""
INSTANCE_TYPE = r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$"
PORTS = r"^\d{1,5}(-\d{1,5})?$"
LABEL_NAME = Text(
    r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$",
    "example.com/team",
)
LABEL_VALUE = Text(r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$", "vision")
MOUNT_FOLDER = Text(r"^(/[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?)+$", "/mnt/efs")
RESERVATION = Text(r"^cr-[0-9a-f]{8,17}$", "cr-0123456789abcdef0")
EFFECTS = {
    "NoSchedule": "NO_SCHEDULE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
}
"""A taint's effects, and what EKS calls them."""
TYPES = WholeNumbers(1, 20)
"""How many instance types a managed node group takes."""
TAINTS = WholeNumbers(0, 50)
VOLUME_GIB = WholeNumbers(20, 16384)
FEWEST, MOST = WholeNumbers(0), WholeNumbers(1)
MOST_NODES = 6
"""The default of a group's most nodes."""
STATE_GIB = WholeNumbers(10, 16384)
"""A self-managed control plane's volume."""

_SYSTEM = "bin|boot|dev|etc|lib|lib64|opt|proc|run|sbin|sys|tmp|usr|var"


def default_desired(least: int, most: int, gpu: bool) -> int:
    """Returns how many nodes a group starts with: 3, within its limits, or the fewest for GPUs,
    which cost most.
    """
    return least if gpu else min(max(3, least), most)


def sizes(least: int | None, desired: int | None, most: int | None) -> Iterator[Violation]:
    """Refuses numbers of fewest, first and most nodes that contradict each other."""
    wrong = [
        *FEWEST("min_size", least),
        *FEWEST("desired_size", desired),
        *MOST("max_size", most),
    ]
    yield from wrong
    if wrong:
        return
    if least is not None and most is not None and least > most:
        yield Violation("min_size", least, f"allowed is 0 to {{max_size}} ({most})")
    elif desired is not None and (
        (least is not None and desired < least) or (most is not None and desired > most)
    ):
        lower = "0" if least is None else f"{{min_size}} ({least})"
        upper = "more" if most is None else f"{{max_size}} ({most})"
        yield Violation("desired_size", desired, f"allowed is {lower} to {upper}")


def wrong_types(types: Sequence[str], image: str | None = None) -> Iterator[Violation]:
    """Refuses a value that is not an EC2 instance type, and a type that does not run the image.

    Args:
        types: EC2 instance types.
        image: EKS's AMI type, such as AL2023_ARM_64_STANDARD; None: x86-64.
    """
    arm = image is not None and "ARM" in image
    for value in types:
        if not re.search(INSTANCE_TYPE, value):
            allowed = "allowed are EC2 instance types such as m5.large"
            yield Violation("instance_types", value, allowed)
        elif ARM_TYPE.fullmatch(value) and not arm:
            of = "the trainer image" if image is None else image
            allowed = f"{of} is for x86-64, and this type is arm"
            if image is None and ARM_GPU_TYPE.fullmatch(value):
                allowed = (
                    "there is no wheel of Paddle for GPUs on arm: take a type such as g5.xlarge"
                )
            yield Violation("instance_types", value, allowed)
        elif arm and not ARM_TYPE.fullmatch(value):
            yield Violation("instance_types", value, f"{image} is for arm, and this type is x86-64")
        elif sizes_of_family := _sizes_without(value):
            allowed = f"EC2 has no such size: allowed are {sizes_of_family}"
            yield Violation("instance_types", value, allowed)


def _sizes_without(instance_type: str) -> str:
    """Returns the sizes of the type's family, if the family is known and lacks this one."""
    family, _, size = instance_type.partition(".")
    sizes = INSTANCE_TYPES["sizes"].get(family, [])
    return "" if size in sizes else ", ".join(f"{family}.{other}" for other in sizes)


def unknown_families(types: Sequence[str]) -> list[str]:
    """Returns the types of families that this release does not know: newer ones, or misspelled."""
    return [
        value
        for value in types
        if not ARM_TYPE.fullmatch(value) and value.partition(".")[0] not in INSTANCE_TYPES["sizes"]
    ]


def control_plane_type(value: str | None) -> Iterator[Violation]:
    """Refuses a machine that cannot be a self-managed control plane."""
    if value is None:
        return
    if not re.search(INSTANCE_TYPE, value) or ARM_TYPE.fullmatch(value):
        allowed = "allowed is an x86-64 EC2 instance type such as t3.medium"
        yield Violation("instance_type", value, allowed)
    elif XEN_TYPE.fullmatch(value):
        allowed = (
            "it is from before Nitro, and a volume has no NVMe name there: allowed is one such as "
            "t3.medium"
        )
        yield Violation("instance_type", value, allowed)


def wrong_ports(ranges: Sequence[str]) -> Iterator[Violation]:
    """Refuses a value that is neither a port nor a range of ports, such as 7164-7167."""
    for value in ranges:
        first, _, last = value.partition("-")
        if not re.search(PORTS, value) or not 1 <= int(first) <= int(last or first) <= 65535:
            allowed = "allowed are ports from 1 to 65535, the lower one first"
            yield Violation("host_ports", value, allowed)


def wrong_image(image: str, *, gpu: bool) -> Iterator[Violation]:
    """Refuses an AMI type that these constructs cannot boot, or whose machines have no GPUs."""
    if not (parts := IMAGE.fullmatch(image)):
        yield Violation(
            "ami_type", image, "allowed is one of Amazon Linux 2023, such as AL2023_ARM_64_STANDARD"
        )
    elif gpu != (parts[2] == "NVIDIA"):
        variant = "NVIDIA" if gpu else "STANDARD"
        allowed = f"shape.gpu is {str(gpu).lower()}: allowed is one that ends with {variant}"
        yield Violation("ami_type", image, allowed)


def system_folder(folder: str | None) -> Iterator[Violation]:
    """Refuses a folder that a machine needs for itself."""
    if folder and re.match(rf"/(({_SYSTEM})(/|$)|(home|mnt|root|srv)$)", folder):
        allowed = "that is the system's: allowed is a folder of its own, such as /mnt/efs"
        yield Violation("mount_file_system", folder, allowed)


def reserved_labels(labels: dict[str, str]) -> Iterator[Violation]:
    """Refuses labels that a kubelet may not set."""
    for key, value in labels.items():
        reserved = re.match(r"(?:.+\.)?(kubernetes\.io|k8s\.io|eks\.amazonaws\.com)/", key)
        if reserved and not re.match(r"(.+\.)?(node|kubelet)\.kubernetes\.io/", key):
            allowed = f"kubelets may not set labels of {reserved[1]}; use a domain of your own"
            yield Violation(f"labels.{key}", value, allowed)


class Group(Protocol):
    """The settings of a group that the rules between them read: a NodeShape, or cluster.yaml's
    group.
    """

    @property
    def instance_types(self) -> Sequence[str]: ...
    @property
    def spot(self) -> bool: ...
    @property
    def parallel_image_pull(self) -> bool: ...
    @property
    def gpu(self) -> bool: ...
    @property
    def taints(self) -> Sequence[Any]: ...
    @property
    def placement_group(self) -> bool: ...
    @property
    def efa(self) -> bool: ...
    @property
    def capacity_reservation(self) -> str | None: ...
    @property
    def capacity_block(self) -> bool: ...


def contradictions(group: Group, *, zones: int | None, managed: bool) -> Iterator[Violation]:
    """Refuses settings of a group that exclude each other.

    Args:
        group: each of its settings is valid on its own; its instance types are those that are no
            tokens.
        zones: how many zones are named for the nodes; None: that is not known, or does not matter.
        managed: EKS runs the group.
    """
    for value in group.instance_types:
        if group.gpu and not GPU_TYPE.fullmatch(value):
            allowed = "{gpu} is true: allowed are NVIDIA types such as g5.xlarge"
            yield Violation("instance_types", value, allowed)
        if not group.gpu and GPU_TYPE.fullmatch(value):
            allowed = "its GPUs would lie idle: set {gpu} true, or take another type"
            yield Violation("instance_types", value, allowed)
        if group.parallel_image_pull and SMALL_TYPE.fullmatch(value):
            allowed = "{parallel_image_pull} wants 4 vCPUs: allowed are sizes from xlarge"
            yield Violation("instance_types", value, allowed)
    for prop, lack, example in (
        ("efa", "it has no Elastic Fabric Adapter", "c5n.18xlarge"),
        ("placement_group", "EC2 takes none of its family into one", "m5.large"),
        ("capacity_reservation", "", ""),
    ):
        if not (value := getattr(group, prop)):
            continue
        if zones not in (1, None):
            allowed = "it works within one zone: name exactly one in {availability_zones}"
            yield Violation(prop, value, allowed)
        for name in group.instance_types if lack else ():
            family, _, size = name.partition(".")
            fitting = INSTANCE_TYPES[prop].get(family, [size])
            if size not in fitting:
                like = (
                    ", ".join(f"{family}.{size}" for size in fitting) or f"types such as {example}"
                )
                allowed = f"{{{prop}}} is true, and {lack}: allowed are {like}"
                yield Violation("instance_types", name, allowed)
    if group.efa and group.instance_types:
        try:
            efa_cards(group.instance_types)
        except ValueError as error:
            types = ", ".join(group.instance_types)
            yield Violation("instance_types", types, f"{{efa}} is true, and {error}")
    if group.spot and group.capacity_reservation:
        allowed = "nodes from {capacity_reservation} are not spare: leave one of the two out"
        yield Violation("spot", True, allowed)
    if group.capacity_block and not (
        group.capacity_reservation and managed and len(group.instance_types) == 1
    ):
        allowed = "it wants {capacity_reservation}, kind managed and exactly one instance type"
        yield Violation("capacity_block", True, allowed)
    if group.gpu and any(
        (taint.key, taint.effect) == (GPU_TAINT, "NoSchedule") for taint in group.taints
    ):
        yield Violation("taints", f"{GPU_TAINT}:NoSchedule", "{gpu} adds it already: leave it out")


def wrong_shape(shape: NodeShape, image: str | None) -> Iterator[Violation]:
    """Refuses a setting of `shape` that is wrong on its own. Its values are no tokens."""
    yield from refuse_text("instance_types", shape.instance_types, "m5.large")
    if isinstance(shape.instance_types, str):
        return
    yield from wrong_types(shape.instance_types, image)
    yield from duplicates("instance_types", shape.instance_types, "instance type")
    yield from VOLUME_GIB("volume_gib", shape.volume_gib)
    for name, value in shape.labels.items():
        yield from LABEL_NAME(f"labels.{name}", name)
        yield from LABEL_VALUE(f"labels.{name}", value)
    yield from reserved_labels(dict(shape.labels))
    yield from TAINTS("taints", len(shape.taints))
    for taint in shape.taints:
        if taint.effect not in EFFECTS:
            listed = ", ".join(EFFECTS)
            yield Violation(f"taints.{taint.key}.effect", taint.effect, f"allowed are {listed}")
        yield from LABEL_NAME("taints", taint.key)
        yield from LABEL_VALUE(f"taints.{taint.key}", taint.value)
    names = [f"{taint.key}:{taint.effect}" for taint in shape.taints]
    yield from duplicates("taints", names, "taint")
    yield from MOUNT_FOLDER("mount_file_system", shape.mount_file_system)
    yield from system_folder(shape.mount_file_system)
    yield from RESERVATION("capacity_reservation", shape.capacity_reservation)
