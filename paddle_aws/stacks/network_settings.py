"""cluster.yaml's `network` and `zone`: the VPC and the DNS names. Imports no aws_cdk."""

import ipaddress
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator

from constructs_lib import addresses
from constructs_lib.addresses import SSH_CLIENTS, VPC_RANGE
from constructs_lib.rules import LogDays, duplicates, nat_count
from paddle_aws.stacks.conditions import NEW_VPC, NEW_ZONE, OURS, PUBLIC
from paddle_aws.stacks.rule_settings import apply_rule, translate_violation
from paddle_settings.model import Fault, Refused, Settings


def ip_network(value: str) -> ipaddress.IPv4Network:
    """Returns `value` as an IPv4 network. Raises Refused if it is none."""
    try:
        return addresses.ip_network(value)
    except ValueError as error:
        raise Refused("", value, str(error)) from None


def check_certificates(value: str) -> str:
    """Returns a bundle of certificates. Raises Refused for anything else."""
    allowed = "certificates in PEM, each from BEGIN CERTIFICATE to END CERTIFICATE, are allowed"
    if "PRIVATE KEY" in value or "BEGIN CERTIFICATE" not in value:
        raise Refused("", "a text without certificates" if value else None, allowed)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=value)
    except (ssl.SSLError, ValueError):
        raise Refused("", "no bundle that OpenSSL reads", allowed) from None
    return value


def require_unique(what: str, name: Callable[[Any], str] = str) -> AfterValidator:
    """Returns a validator that raises Refused if a list has an entry twice."""
    return apply_rule(lambda values: duplicates("", [name(value) for value in values], what))


ZoneNames = Annotated[list[str], require_unique("availability zone")]
SshRanges = Annotated[list[str], Field(min_length=1), apply_rule(partial(SSH_CLIENTS, ""))]
"""CIDRs that may connect to port 22."""


SubnetId = Annotated[
    str, Field(pattern=r"^subnet-[0-9a-f]{8,17}$", examples=["subnet-0123456789abcdef0"])
]
BY_ZONE = AfterValidator(lambda subnets: dict(sorted(subnets.items())))
"""Sorts by zone: resources in subnets are numbered, and another order must not move them."""


class ExistingVpc(Settings):
    """An existing VPC. A deploy adds the endpoints and flow logs that you ask for, and changes
    nothing else of it.
    """

    id: str = Field(pattern=r"^vpc-[0-9a-f]{8,17}$", examples=["vpc-0123456789abcdef0"])
    """The VPC's id."""
    cidr: str
    """Address range."""
    private_subnets: Annotated[dict[str, SubnetId], Field(min_length=1), BY_ZONE]
    """Zone: id of its private subnet."""
    public_subnets: Annotated[dict[str, SubnetId], BY_ZONE] = Field(default={})
    """Zone: id of its public subnet."""

    @field_validator("cidr")
    @classmethod
    def _range(cls, value: str) -> str:
        network = ip_network(value)
        nobodys = (
            network.is_loopback
            or network.is_link_local
            or network.is_multicast
            or network.network_address.packed[0] == 0
        )
        if nobodys or not 16 <= network.prefixlen <= 28:
            raise Refused(
                "", value, "no VPC has this range: allowed is /16 to /28, such as 10.0.0.0/16"
            )
        return value

    def _faults(self) -> Iterator[Fault]:
        ids = [*self.private_subnets.values(), *self.public_subnets.values()]
        if len(set(ids)) < len(ids):
            yield Refused(
                "private_subnets",
                ", ".join(ids),
                "each subnet may be listed once, in one zone, private or public",
            )


class Network(Settings):
    """The cluster's VPC."""

    cidr: Annotated[str, apply_rule(partial(VPC_RANGE, "")), NEW_VPC] = "10.0.0.0/16"
    """Address range of the VPC: /16 to /24, private."""
    # The subnets are numbered: another order must not move them.
    availability_zones: Annotated[ZoneNames, AfterValidator(sorted), NEW_VPC] = Field(
        default=["us-west-2a", "us-west-2b"], min_length=1, max_length=6
    )
    """Zones with subnets: two or more for EKS, one or more for a self-managed cluster."""
    nat_gateways: Annotated[int, NEW_VPC] = Field(default=1, ge=0)
    """NAT gateways: 0, 1, or one for each zone. 0 needs interface_endpoints."""
    interface_endpoints: bool = False
    """Interface endpoints for AWS's services, with which a cluster works without NAT
    (docs/aws.md).
    """
    flow_log_days: LogDays = 30
    """Retention of the VPC's flow logs; 0: none."""
    existing: ExistingVpc | None = None
    """Use this VPC."""

    def _faults(self) -> Iterator[Fault]:
        if self.existing is not None:
            return
        for violation in nat_count(self.nat_gateways, len(self.availability_zones)):
            yield translate_violation(violation, {})
        if not self.nat_gateways and not self.interface_endpoints:
            allowed = (
                "without NAT nodes reach AWS by {here}interface_endpoints alone: set them true"
            )
            yield Refused("nat_gateways", self.nat_gateways, allowed)

    @property
    def zones(self) -> list[str]:
        """The zones that have a private subnet."""
        return list(self.existing.private_subnets) if self.existing else self.availability_zones

    @property
    def has_public_subnets(self) -> bool:
        """Whether a public subnet of each zone is known: the CDK takes one for each zone or none at
        all.
        """
        if self.existing:
            return self.existing.private_subnets.keys() <= self.existing.public_subnets.keys()
        return self.nat_gateways > 0

    @property
    def range(self) -> ipaddress.IPv4Network:
        """The VPC's address range."""
        return ip_network(self.existing.cidr if self.existing else self.cidr)

    def subnet(self, zone: str, *, public: bool) -> ipaddress.IPv4Network | None:
        """Returns the subnet of `zone` as the CDK lays it out; None if there is none or its range
        is unknown.
        """
        if self.existing or (public and not self.nat_gateways):
            return None
        zones, vpc = self.availability_zones, self.range
        # A public subnet: 1/256 of the VPC, /28 at the smallest.
        wide = min(28, vpc.prefixlen + 8)
        begin = int(vpc.network_address)
        if not public:
            used = len(zones) * 2 ** (32 - wide) if self.nat_gateways else 0
            # The CDK takes the widest prefix that fits once per zone, and starts at the next
            # boundary of that prefix.
            wide = 32 - (((vpc.num_addresses - used) // len(zones)).bit_length() - 1)
            size = 2 ** (32 - wide)
            begin = -(-(begin + used) // size) * size
        return ipaddress.IPv4Network((begin + zones.index(zone) * 2 ** (32 - wide), wide))

    @property
    def private_addresses_per_zone(self) -> int | None:
        """Usable addresses of each private subnet; None if the subnets are unknown."""
        subnet = self.subnet(self.zones[0], public=False)
        # AWS reserves five addresses of every subnet.
        return subnet.num_addresses - 5 if subnet else None


PROXY = r"^https?://[A-Za-z0-9.-]+:\d{1,5}$"
PROXY_EXAMPLES = ["http://proxy.corp.example:3128"]
Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9.:/_-]{1,253}$", examples=[".corp.example"])]


class Proxy(Settings):
    """The proxy of a corporate network (docs/do/corporate-network.md)."""

    http: str | None = Field(default=None, pattern=PROXY, examples=PROXY_EXAMPLES)
    """Address for http://; no password, which everybody who reads the stacks could read."""
    https: str | None = Field(default=None, pattern=PROXY, examples=PROXY_EXAMPLES)
    """Address for https://."""
    no: Annotated[list[Host], require_unique("host")] = Field(default=[], max_length=50)
    """Hosts, domains and ranges to reach without it, beside the cluster's own."""

    def _faults(self) -> Iterator[Fault]:
        if not (self.http or self.https):
            yield Refused("https", None, "name the address of the proxy, for https, http or both")

    @property
    def ports(self) -> list[int]:
        """The proxy's ports."""
        addresses_ = filter(None, (self.http, self.https))
        return list(dict.fromkeys(int(address.rpartition(":")[2]) for address in addresses_))


DNS_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
ZONE_ID = "^Z[0-9A-Z]{1,31}$"


class ExistingZone(Settings):
    """An existing private hosted zone that is associated with the VPC."""

    id: str = Field(pattern=ZONE_ID, examples=["Z0123456789ABCDEFGHIJ"])
    """The zone's id."""
    name: str
    """The zone's name."""


class PublicName(Settings):
    """The API's name for the ranges of `cluster.public_access_from`, in an existing public hosted
    zone.
    """

    id: str = Field(pattern=ZONE_ID, examples=["Z0123456789ABCDEFGHIJ"])
    """The public zone's id."""
    host: str = Field(
        max_length=255, pattern=rf"^{DNS_LABEL}(\.{DNS_LABEL})+$", examples=["paddle.example.com"]
    )
    """The full name, in that zone. On EKS its record is a CNAME, so it cannot be the zone's name
    itself.
    """


class Zone(Settings):
    """The private DNS zone that names the cluster (the tutorials' `paddle`)."""

    name: Annotated[str, NEW_ZONE] = Field(
        default="paddle",
        max_length=255,
        pattern=rf"^{DNS_LABEL}(\.{DNS_LABEL})*$",
        examples=["paddle"],
    )
    """Name of the zone; the cluster's endpoint is `api.<name>`."""
    existing: ExistingZone | None = None
    """Use this private hosted zone."""
    public: Annotated[PublicName | None, OURS, PUBLIC] = None
    """A public name for the API, beside the private one; unset: none."""
