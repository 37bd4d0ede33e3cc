"""Whether address ranges belong to a single owner. Imports no aws_cdk."""

from collections.abc import Iterable
from ipaddress import IPv4Network, collapse_addresses

MOST = 2 * 2**24
"""Addresses in two /8: a company's private ranges fit, 0.0.0.0/1 does not."""


def everybody(ranges: Iterable[str]) -> bool:
    """Whether `ranges` together cover more of the internet than any one owner has. Ranges that are
    tokens are not counted.
    """
    networks = [IPv4Network(one, strict=False) for one in ranges if one[:1].isdigit()]
    return sum(network.num_addresses for network in collapse_addresses(networks)) > MOST
