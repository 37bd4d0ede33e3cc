"""Whether address ranges are somebody's own. Imports no aws_cdk."""

from collections.abc import Iterable
from ipaddress import IPv4Network, collapse_addresses

MOST = 2 * 2**24
"""Addresses of two /8: with them a company's private ranges fit, and 0.0.0.0/1 does not."""


def everybody(ranges: Iterable[str]) -> bool:
    """Whether `ranges` together are more of the internet than anybody's own; a token's are not known."""
    networks = [IPv4Network(one, strict=False) for one in ranges if one[:1].isdigit()]
    return sum(network.num_addresses for network in collapse_addresses(networks)) > MOST
