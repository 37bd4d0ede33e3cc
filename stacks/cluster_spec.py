"""What cluster.yaml says, checked: the one description of a cluster that everything else is built from.

Promises: a `ClusterSpec` that exists can be synthesized and, as far as can be known without an account, deployed;
anything else is refused by `ClusterSpec.load` with one sentence. Imports no aws_cdk, so that tools can read it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from stacks.control_plane_settings import ADDONS, KUBERNETES_VERSIONS, ControlPlane
from stacks.network_settings import Network, Zone, ip_network
from stacks.node_settings import NodeGroup
from stacks.people_settings import Budget, Jobs, Logs
from stacks.settings import Refused, Settings, read
from stacks.storage_settings import Bucket, FileSystem, Images, Key

# Tools know this module alone of all that is below it.
__all__ = ["ADDONS", "KUBERNETES_VERSIONS", "ClusterSpec"]

GroupName = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$")]

ADDRESSES_PER_NODE = 32
"""VPC addresses to reckon with for each node: its own, its daemons', its jobs' pods, and those that the VPC CNI holds ready."""

OUR_TAGS = ("project", "cluster", "owner", "KubernetesCluster", "Name")


class ClusterSpec(Settings):
    """cluster.yaml."""

    name: str = Field(default="paddle", max_length=40)
    """Name of the cluster and first word of each stack: lower-case letters, digits and hyphens, a letter first."""
    region: str = Field(default="us-west-2", pattern=r"^[a-z]{2,3}(-[a-z]+)+-\d$")
    """AWS region."""
    owner: str = Field(default="paddle", min_length=1, max_length=64, pattern=r"^[\w .:/=+@-]+$")
    """Who answers for it: the value of the `owner` tag."""
    tags: dict[str, str] = Field(default={}, max_length=40)
    """Further tags of everything."""
    retain: bool
    """true: a destroy keeps file system, bucket, key and image repository. false: it deletes them with everything in them."""
    network: Network = Network()
    """The VPC."""
    zone: Zone = Zone()
    """The private DNS zone."""
    key: Key = Key()
    """The KMS key."""
    bucket: Bucket = Bucket()
    """The bucket."""
    file_system: FileSystem = FileSystem()
    """The shared file system."""
    images: Images = Images()
    """The image repository."""
    cluster: ControlPlane = ControlPlane()
    """The Kubernetes control plane."""
    nodes: dict[GroupName, NodeGroup] = Field(default={"workers": NodeGroup()}, min_length=1)
    """Node groups by name."""
    jobs: Jobs = Jobs()
    """Where jobs run."""
    logs: Logs = Logs()
    """Container logs."""
    budget: Budget | None = None
    """A monthly budget, alarms and a dashboard; unset: none."""

    @classmethod
    def load(cls, path: Path) -> ClusterSpec:
        """The settings in the file at `path`; SettingError, one sentence, if they cannot be used."""
        return read(cls, path)

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        # The narrowest of all names made from it: CloudFormation's stacks (no underscore), ECR's repository (lower case).
        if not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", value):
            raise Refused("", value, "allowed are lower-case letters, digits and hyphens, a letter first, no hyphen last")
        return value

    @field_validator("tags")
    @classmethod
    def _tags(cls, tags: dict[str, str]) -> dict[str, str]:
        for key, value in tags.items():
            if key in OUR_TAGS or key.lower().startswith("aws:"):
                raise Refused(key, value, f"taken: {', '.join(OUR_TAGS)} and aws: are set by the project or AWS")
            if not 1 <= len(key) <= 128 or len(value) > 256:
                raise Refused(key, value, "allowed are keys of 1 to 128 characters and values of up to 256")
        return tags

    @model_validator(mode="after")
    def _zones(self) -> Self:
        field = "network.existing.private_subnets" if self.network.existing else "network.availability_zones"
        zones = self.network.zones
        for zone in zones:
            if not re.fullmatch(re.escape(self.region) + "[a-z]", zone):
                raise Refused(field, zone, f"allowed are zones of region {self.region}, such as {self.region}a")
        wanted = {f"nodes.{name}.availability_zones": group.availability_zones for name, group in self.nodes.items()}
        if existing := self.file_system.existing:
            wanted["file_system.existing.zones_without_mount_target"] = existing.zones_without_mount_target
        for setting, names in wanted.items():
            for zone in names:
                if zone not in zones:
                    raise Refused(setting, zone, f"allowed are {field} ({', '.join(zones)})")
        return self

    @model_validator(mode="after")
    def _addresses(self) -> Self:
        vpc = self.network.range
        field = "network.existing.cidr" if self.network.existing else "network.cidr"
        if vpc.overlaps(ip_range := ip_network(self.cluster.service_cidr)):
            raise Refused("cluster.service_cidr", str(ip_range), f"it overlaps {field} ({vpc}): take a range apart from it")
        has = self.network.private_addresses_per_zone
        if has is not None:
            for zone in self.network.zones:
                groups = [group for group in self.nodes.values() if zone in (group.availability_zones or self.network.zones)]
                nodes = sum(-(-group.max // len(group.availability_zones or self.network.zones)) for group in groups)
                if nodes * ADDRESSES_PER_NODE > has:
                    allowed = (
                        f"its private subnet in {zone} has {has} addresses, and {nodes} nodes with their pods take "
                        f"{nodes * ADDRESSES_PER_NODE}: take a wider range or fewer nodes"
                    )
                    raise Refused(field, str(vpc), allowed)
        return self

    @model_validator(mode="after")
    def _untainted(self) -> Self:
        # coredns and the EFS driver's controller tolerate no taint of ours: on tainted nodes alone they wait, and the deploy
        # fails after twenty minutes. An existing cluster may have other nodes for them.
        blocked = [name for name, group in self.nodes.items() if group.repels]
        if blocked and len(blocked) == len(self.nodes) and not self.cluster.existing:
            allowed = (
                "every group is tainted (gpu adds a taint too), and coredns and the EFS driver would never start: "
                "add a group without gpu and taints"
            )
            raise Refused("nodes", ", ".join(blocked), allowed)
        return self

    @model_validator(mode="after")
    def _key_region(self) -> Self:
        if self.key.existing_arn and self.key.existing_arn.split(":")[3] != self.region:
            raise Refused("key.existing_arn", self.key.existing_arn, f"allowed is a key in region {self.region}")
        return self

    @property
    def cluster_name(self) -> str:
        """The name that EKS knows the cluster by."""
        return self.cluster.existing.name if self.cluster.existing else self.name

    @property
    def backup(self) -> bool:
        """Whether the file system is backed up."""
        return self.retain if self.file_system.backup is None else self.file_system.backup
