"""What cluster.yaml says, checked: the one description of a cluster that everything else is built from.

Promises: a `ClusterSpec` that exists can be synthesized and, as far as can be known without an account, deployed;
anything else is refused by `ClusterSpec.load` with one sentence. Imports no aws_cdk, so that tools can read it.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from stacks.settings import Refused, Settings, read

KUBERNETES_VERSIONS = ("1.34", "1.35", "1.36")
"""Versions in EKS standard support that aws_eks_v2 knows too; standard support of 1.34 ends in 2026-12, of 1.35 in 2027-03."""

Cidr = Annotated[str, Field(pattern=r"^\d{1,3}(\.\d{1,3}){3}/\d{1,2}$")]
GroupName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,29}$")]


class Network(Settings):
    """The VPC that everything lives in."""

    cidr: str = "10.0.0.0/16"
    """Address range of the VPC: /16 to /24."""
    availability_zones: list[str] = Field(default=["us-west-2a", "us-west-2b"], min_length=1)
    """Zones with subnets. EKS wants two at least; nodes may be pinned to one of them (nodes.<group>.availability_zones)."""
    nat_gateways: int = Field(default=1, ge=0)
    """NAT gateways for the private subnets: 0, 1, or one for each zone."""

    @field_validator("cidr")
    @classmethod
    def _cidr(cls, value: str) -> str:
        network = ip_network(value)
        if not 16 <= network.prefixlen <= 24 or not network.is_private:
            raise Refused("", value, "allowed is a private IPv4 range from /16 to /24, such as 10.0.0.0/16")
        return value

    @field_validator("availability_zones")
    @classmethod
    def _zones(cls, zones: list[str]) -> list[str]:
        if len(zones) < 2:
            raise Refused(
                "",
                ", ".join(zones),
                "EKS wants two availability zones at least; to keep nodes in one, set nodes.<group>.availability_zones",
            )
        if len(set(zones)) < len(zones):
            raise Refused("", ", ".join(zones), "each availability zone may stand once")
        return zones

    @model_validator(mode="after")
    def _nat(self) -> Self:
        zones = len(self.availability_zones)
        if self.nat_gateways not in (0, 1, zones):
            raise Refused(
                "nat_gateways", self.nat_gateways, f"allowed is 0, 1, or {zones} (one for each of {{here}}availability_zones)"
            )
        return self


class Zone(Settings):
    """The private DNS zone that names the cluster (the tutorials' `paddle`)."""

    name: str = Field(default="paddle", pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$")
    """Name of the zone; the cluster's endpoint is `api.<name>`."""


class Cluster(Settings):
    """The EKS control plane."""

    version: str = "1.35"
    """Kubernetes version."""
    public_access_from: list[str] = []
    """CIDRs that may reach the API endpoint from the internet; empty: the endpoint is private (see docs/aws.md for the port forward)."""
    administrators: list[str] = []
    """ARNs of IAM roles or users that administer the cluster."""

    @field_validator("version")
    @classmethod
    def _version(cls, value: str) -> str:
        if value not in KUBERNETES_VERSIONS:
            raise Refused("", value, f"allowed is one of {', '.join(KUBERNETES_VERSIONS)} (EKS standard support)")
        return value

    @field_validator("public_access_from")
    @classmethod
    def _restricted(cls, ranges: list[str]) -> list[str]:
        for value in ranges:
            if ip_network(value).prefixlen == 0:
                raise Refused("", value, "the endpoint is never opened to everybody; name your own range, such as 203.0.113.7/32")
        return ranges


class NodeGroup(Settings):
    """One group of equal nodes."""

    instance_types: list[str] = Field(default=["m5.large"], min_length=1)
    """EC2 instance types, in order of preference."""
    min: int = Field(default=1, ge=0)
    """Fewest nodes."""
    desired: int = Field(default=3, ge=0)
    """Nodes at the start."""
    max: int = Field(default=6, ge=1)
    """Most nodes."""
    volume_gib: int = Field(default=50, ge=20, le=16384)
    """Size of each node's encrypted root volume, GiB."""
    availability_zones: list[str] = []
    """Zones of the nodes, among network.availability_zones; empty: all. One zone keeps pserver traffic free of cross-zone charges."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.min > self.max:
            raise Refused("min", self.min, f"allowed is 0 to {{here}}max ({self.max})")
        if not self.min <= self.desired <= self.max:
            raise Refused("desired", self.desired, f"allowed is {{here}}min ({self.min}) to {{here}}max ({self.max})")
        return self


class ClusterSpec(Settings):
    """cluster.yaml."""

    name: str = Field(default="paddle", max_length=40)
    """Name of the cluster and first word of each stack: letters, digits and hyphens, a letter first."""
    region: str = Field(default="us-west-2", pattern=r"^[a-z]{2,3}(-[a-z]+)+-\d$")
    """AWS region."""
    owner: str = Field(default="paddle", min_length=1, max_length=64, pattern=r"^[\w .:/=+@-]+$")
    """Who answers for it: the value of the `owner` tag."""
    retain: bool
    """true: a destroy keeps file system, bucket, key and image repository. false: it deletes them with everything in them."""
    network: Network = Network()
    zone: Zone = Zone()
    cluster: Cluster = Cluster()
    nodes: dict[GroupName, NodeGroup] = Field(default={"workers": NodeGroup()})
    """Node groups by name."""

    @classmethod
    def load(cls, path: Path) -> ClusterSpec:
        """The settings in the file at `path`; SettingError, one sentence, if they cannot be used."""
        return read(cls, path)

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        # CloudFormation's stack names are the narrowest of all names made from it (no underscore); bucket-like names want lower case.
        if (
            not all(c.islower() or c.isdigit() or c == "-" for c in value)
            or not value[:1].isalpha()
            or value.endswith("-")
            or not value.isascii()
        ):
            raise Refused(
                "",
                value,
                "allowed are lower-case letters, digits and hyphens, a letter first, no hyphen last (CloudFormation and EKS names)",
            )
        return value

    @model_validator(mode="after")
    def _zones(self) -> Self:
        for zone in self.network.availability_zones:
            if not zone.startswith(self.region) or len(zone) != len(self.region) + 1:
                raise Refused(
                    "network.availability_zones", zone, f"allowed are zones of region {self.region}, such as {self.region}a"
                )
        for name, group in self.nodes.items():
            for zone in group.availability_zones:
                if zone not in self.network.availability_zones:
                    allowed = ", ".join(self.network.availability_zones)
                    raise Refused(f"nodes.{name}.availability_zones", zone, f"allowed are network.availability_zones ({allowed})")
        return self


def ip_network(value: str) -> ipaddress.IPv4Network:
    """`value` as an IPv4 network; Refused if it is none."""
    try:
        return ipaddress.IPv4Network(value)
    except ValueError:
        raise Refused("", value, "allowed is an IPv4 range such as 10.0.0.0/16, with no bits set behind the prefix") from None
