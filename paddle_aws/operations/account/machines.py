"""The machines that a cluster's settings ask for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paddle_aws.stacks.cluster_spec import TUNNEL_TYPE, ClusterSpec

ROOT_DISK, TUNNEL_DISK = 30, 8
"""GiB of the boot disks of a self-managed control plane (beside its volume) and of a tunnel's
machine.
"""


@dataclass(frozen=True)
class Machines:
    """A group of equal machines that the settings ask for."""

    name: str
    """The group's path in cluster.yaml."""
    types: Sequence[str]
    zones: Sequence[str]
    desired: int
    most: int
    spot: bool
    disk: int
    """GiB of each machine's disk."""


def machines(spec: ClusterSpec) -> Iterator[Machines]:
    """Yields every group of machines that the settings ask for."""
    zones = spec.network.zones
    for name, group in spec.nodes.items():
        sizes = (0 if spec.auto else group.desired, group.max, group.spot, group.volume_gib)
        yield Machines(
            f"nodes.{name}", group.instance_types, group.availability_zones or zones, *sizes
        )
    if spec.cluster.self_managed:
        disk = ROOT_DISK + spec.cluster.volume_gib
        yield Machines(
            "cluster", [spec.cluster.instance_type], [spec.control_plane_zone], 1, 1, False, disk
        )
    if spec.cluster.has_tunnel:
        yield Machines("cluster.tunnel", [TUNNEL_TYPE], zones, 1, 1, False, TUNNEL_DISK)
