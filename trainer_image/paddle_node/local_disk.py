"""The pod's disk as a place for a trainer's shard."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LocalDisk:
    """Where to store a copy."""

    folder: Path
    room: int | None = None
    """Maximum bytes of the pod's scratch: above it, Kubernetes evicts the pod even if the disk has
    space. None: no limit.
    """
