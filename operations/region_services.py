"""Which AWS services a region offers.

Promises: AWS's own public list is asked (Parameter Store, /aws/service/global-infrastructure); where it cannot be read, or
does not know a service by our name, the table that comes with boto3 is used, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

LIST = "/aws/service/global-infrastructure"
AT_ONCE = 10
"""Names that GetParameters takes."""
GLOBAL = ("iam", "route53", "sts")
"""Services that boto3's table gives no regions of their own."""


def missing(ssm: Any, region: str, services: Iterable[str]) -> tuple[list[str], str]:
    """The services that the region does not offer, and who says so."""
    from botocore.exceptions import BotoCoreError, ClientError

    wanted = list(services)
    here = f"{LIST}/regions/{region}/services/"
    try:
        offered = _known(ssm, here, wanted)
        # A name that AWS's list has nowhere is spelled another way there: it says nothing about the region.
        anywhere = offered | _known(ssm, f"{LIST}/services/", [one for one in wanted if one not in offered])
    except (BotoCoreError, ClientError):
        offered = anywhere = set()
    unlisted = [one for one in wanted if one not in anywhere]
    lacks = [one for one in wanted if one in anywhere - offered]
    if not unlisted:
        return lacks, "by AWS's list of today"
    table, version = _table(region, unlisted)
    said = f"by the table of boto3 {version}" + ("" if anywhere else "; AWS's own list cannot be read")
    return [*lacks, *table], said if not anywhere else f"by AWS's list of today, {', '.join(unlisted)} {said}"


def _known(ssm: Any, prefix: str, services: list[str]) -> set[str]:
    names = [f"{prefix}{service}" for service in services]
    found: set[str] = set()
    for start in range(0, len(names), AT_ONCE):
        answer = ssm.get_parameters(Names=names[start : start + AT_ONCE])
        found |= {str(one["Name"]).removeprefix(prefix) for one in answer["Parameters"]}
    return found


def _table(region: str, services: list[str]) -> tuple[list[str], str]:
    import boto3

    session = boto3.session.Session()
    lacks = [
        service
        for service in services
        if service not in GLOBAL and (regions := session.get_available_regions(service)) and region not in regions
    ]
    return lacks, str(boto3.__version__)
