"""Rules about IPv4 ranges: which are private, and which AWS accepts. Imports no aws_cdk."""

import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, collapse_addresses
from typing import NamedTuple

from constructs_lib.rules import Violation, refuse_text

MOST = 2 * 2**24
"""Addresses of two /8: enough for the ranges of one company, too few for 0.0.0.0/1."""
PRIVATE = [IPv4Network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]
SHARED = IPv4Network("100.64.0.0/10")
"""RFC 6598: allowed for a VPC and for pods, but not for Kubernetes services on EKS."""


def ip_network(value: str) -> IPv4Network:
    """Returns `value` as an IPv4 network. Raises ValueError if it is none."""
    try:
        if not re.fullmatch(r"[\d.]+/\d{1,2}", value):
            raise ValueError
        return IPv4Network(value)
    except ValueError:
        raise ValueError(
            "allowed is an IPv4 range such as 10.0.0.0/16, with no bits set after the prefix"
        ) from None


def covers_internet(ranges: Iterable[IPv4Network]) -> bool:
    """Whether `ranges` together cover more of the internet than any one owner has."""
    return sum(network.num_addresses for network in collapse_addresses(ranges)) > MOST


class Clients(NamedTuple):
    """A list of IPv4 ranges that do not open `what` to everybody."""

    what: str
    example: str

    def __call__(self, prop: str, ranges: Iterable[str]) -> Iterator[Violation]:
        """Refuses a value that is no such list."""
        if isinstance(ranges, str):
            yield from refuse_text(prop, ranges, ranges if "/" in ranges else self.example)
            return
        networks = []
        for value in ranges:
            try:
                networks.append(ip_network(value))
            except ValueError as error:
                allowed = str(error)
                if _is_address(value):
                    allowed = f"a range is needed, such as {value}/32 for this one address"
                yield Violation(prop, value, allowed)
                return
        if covers_internet(networks):
            never = f"{self.what} is never opened to everybody"
            allowed = f"{never}; name your own range, such as {self.example}"
            yield Violation(prop, ", ".join(ranges), allowed)


class PrivateRange(NamedTuple):
    """An IPv4 range from one width to another, and private or within `more`."""

    widest: int
    narrowest: int
    example: str
    more: tuple[IPv4Network, ...] = ()

    def __call__(self, prop: str, value: str | None) -> Iterator[Violation]:
        """Refuses a value that is no such range."""
        if value is None:
            return
        try:
            network = ip_network(value)
        except ValueError as error:
            yield Violation(prop, value, str(error))
            return
        private = any(map(network.subnet_of, (*PRIVATE, *self.more)))
        if not self.widest <= network.prefixlen <= self.narrowest or not private:
            widths = f"from /{self.widest} to /{self.narrowest}"
            allowed = f"allowed is a private IPv4 range {widths}, such as {self.example}"
            yield Violation(prop, value, allowed)


API_CLIENTS = Clients("the endpoint", "203.0.113.7/32")
SSH_CLIENTS = Clients("SSH", "10.0.0.0/16")
VPC_RANGE = PrivateRange(16, 24, "10.0.0.0/16", (SHARED,))
EKS_SERVICES = PrivateRange(12, 24, "172.20.0.0/16")
K3S_SERVICES = PrivateRange(12, 24, "10.43.0.0/16")
K3S_PODS = PrivateRange(12, 22, "10.42.0.0/16", (SHARED,))


def _is_address(value: str) -> bool:
    try:
        return bool(IPv4Address(value))
    except ValueError:
        return False
