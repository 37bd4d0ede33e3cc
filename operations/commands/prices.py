"""`paddle-aws lock prices`: list prices out of the files that AWS publishes, which need no credentials, into a dated file.

Promises: a price is in the file only if AWS's list has exactly one for what was asked, in the unit that `cost` reckons with;
nothing is guessed or rounded. An instance type that the list does not know is refused, and the file stays as it was.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from operations.commands.lock import Config, Out, write
from operations.errors import BadInput, Failed, cli_errors, of_aws
from operations.screen import say
from settings.addresses import without_secrets

if TYPE_CHECKING:
    from stacks.cluster_spec import ClusterSpec

PRICES = Path("locks/prices.json")
SOURCE = "AWS's public price list, on demand, in US dollars"
FILES = "https://pricing.us-east-1.amazonaws.com"
"""Where AWS publishes them, for the regions of its partitions aws and aws-us-gov."""
ABOVE_THE_TABLE = 5
"""Lines of a file that say what it is."""


@dataclass(frozen=True)
class Query:
    """Which rows of a service's price list have a price: by their columns, and by the usage type's end."""

    service: str
    columns: tuple[tuple[str, str], ...]
    usage: str
    """Regular expression for the usage type's last part (its first part names the region)."""
    unit: str
    """Regular expression for the unit: a price for anything else is not the one that `cost` reckons with."""

    def fits(self, row: dict[str, str], region: str) -> bool:
        # `USW2-BoxUsage:m5.large`; in us-east-1 some have no prefix, and some services write the region out.
        usage = rf"([A-Z]{{2,4}}\d?-|{re.escape(region)}-)?{self.usage}"
        return re.fullmatch(usage, row["usageType"]) is not None and all(row.get(name) == value for name, value in self.columns)


HOUR, GIB_MONTH = "Hrs|Hours?", "GB-Mo"
NAT, GP3 = ("Product Family", "NAT Gateway"), ("Volume API Name", "gp3")
FIXED = {
    "eks-cluster-hour": Query("AmazonEKS", (), r"AmazonEKS-Hours:perCluster", HOUR),
    "nat-gateway-hour": Query("AmazonEC2", (NAT,), r"NatGateway-Hours", HOUR),
    "public-ipv4-hour": Query("AmazonVPC", (), r"PublicIPv4:InUseAddress", HOUR),
    "vpc-endpoint-hour": Query("AmazonVPC", (), r"VpcEndpoint-Hours", HOUR),
    "ebs-gp3-gb-month": Query("AmazonEC2", (GP3,), r"EBS:VolumeUsage\.gp3", GIB_MONTH),
    "efs-provisioned-mibps-month": Query("AmazonEFS", (), r"ProvisionedTP-MiBpsHrs", "MiBps-Mo"),
    "kms-key-month": Query("awskms", (), r"KMS-Keys", "Keys"),
    "secret-month": Query("AWSSecretsManager", (), r"AWSSecretsManager-Secrets", "Secrets"),
}
LINUX = (("Operating System", "Linux"), ("Tenancy", "Shared"), ("Pre Installed S/W", "NA"), ("CapacityStatus", "Used"))


def instance(kind: str) -> Query:
    """An on-demand Linux instance, an hour."""
    return Query("AmazonEC2", (("Instance Type", kind), *LINUX), rf"BoxUsage:{re.escape(kind)}", HOUR)


def prices(
    config: Config = Path("cluster.yaml"),
    out: Out = PRICES,
    files: Annotated[str, typer.Option(help="Where AWS's price list files are, or a mirror.")] = FILES,
) -> None:
    """Read today's list prices for a cluster's region and instance types from AWS, for `paddle-aws cost`.

    Needs no AWS credentials, but for the prices of spot nodes (ec2:DescribeSpotPriceHistory). What the list does not say
    clearly stays unknown. EC2's list is large: a download that was cut goes on in the next run.

    Example: paddle-aws lock prices && paddle-aws cost
    """
    with cli_errors("interrupted: the lock is as it was, what was downloaded is used again"):
        from stacks.cluster_spec import TUNNEL_TYPE, ClusterSpec

        spec = ClusterSpec.load(config)
        kinds = {kind: f"nodes.{name}.instance_types" for name, group in spec.nodes.items() for kind in group.instance_types}
        if spec.cluster.self_managed:
            kinds.setdefault(spec.cluster.instance_type, "cluster.instance_type")
        if spec.cluster.has_tunnel:
            kinds.setdefault(TUNNEL_TYPE, "cluster.tunnel")
        queries = FIXED | {f"{kind}-hour": instance(kind) for kind in sorted(kinds)}
        read, known = _listed(files, spec.region, queries)
        for kind, setting in kinds.items():
            if kind not in known:
                close = get_close_matches(kind, known, 1)
                meant = f"; did you mean {close[0]}?" if close else ""
                raise BadInput(f"{config.name}: {setting} is {kind}: AWS lists no such type in {spec.region}{meant}")
        if not read:
            raise Failed(f"AWS's price list of {spec.region} has no price that was asked for: {out} stays as it is")
        spot = sorted({group.instance_types[0] for group in spec.nodes.values() if group.spot})
        read |= _spot(spec, spot)
        write(out, SOURCE, {"region": spec.region, "prices": read})
        unknown = sorted({*queries, *(f"{kind}-spot-hour" for kind in spot)} - read.keys())
        say(f"{len(read)} prices of {spec.region} are in {out}" + (f"; unknown stay {', '.join(unknown)}" if unknown else ""))


def _listed(files: str, region: str, queries: dict[str, Query]) -> tuple[dict[str, dict[str, str]], set[str]]:
    """What each query has, if it is exactly one price, in a unit that `cost` knows; and every instance type of the list."""
    found: dict[str, dict[tuple[str, str], str]] = {name: {} for name in queries}
    types: set[str] = set()
    for service in dict.fromkeys(query.service for query in queries.values()):
        asked = [(name, query) for name, query in queries.items() if query.service == service]
        try:
            for row in _rows(files.rstrip("/"), service, region):
                types.add(row.get("Instance Type", ""))
                for name, query in asked:
                    if query.fits(row, region):
                        found[name][(row["PricePerUnit"], row["Unit"])] = row["PriceDescription"]
        except (ValueError, KeyError, TypeError, csv.Error):
            raise Failed(f"the price list of {service} at {without_secrets(files)} is not of AWS's form") from None
    clear = {name: next(iter(each.items())) for name, each in found.items() if len(each) == 1}
    return {
        name: {"usd": usd, "unit": unit, "description": description}
        for name, ((usd, unit), description) in clear.items()
        if re.fullmatch(queries[name].unit, unit, re.IGNORECASE)
    }, types


def _rows(files: str, service: str, region: str) -> Iterator[dict[str, str]]:
    """What a service takes on demand in a region, of tiers the first, by the columns of AWS's table; free offers are left out."""
    from operations.account.download import content, download
    from settings.cache import place

    regions = json.loads(content(f"{files}/offers/v1.0/aws/{service}/current/region_index.json"))["regions"]
    if region not in regions:
        raise BadInput(f"region is {region}: AWS's price list of {service} has no such region")
    # Each version has an address of its own: what was downloaded of one is never continued with another.
    url = files + re.sub(r"\.json$", ".csv", regions[region]["currentVersionUrl"])
    path = place("prices", url)
    say(f"reading the prices of {service} in {region}")
    download(url, path, None)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(islice(file, ABOVE_THE_TABLE, None)):
                whose = (row["TermType"], row["Currency"], row["StartingRange"], row.get("Region Code", region))
                if whose == ("OnDemand", "USD", "0", region) and float(row["PricePerUnit"]) > 0:
                    yield row
    finally:
        path.unlink()


def _spot(spec: ClusterSpec, kinds: list[str]) -> dict[str, dict[str, str]]:
    """What a spot instance takes now, in the dearest of the cluster's zones; none without credentials."""
    from operations.account.aws import client, every

    found: dict[str, dict[str, str]] = {}
    zones = [{"Name": "availability-zone", "Values": list(spec.network.zones)}]
    now = datetime.now(UTC)
    try:
        for kind in kinds:
            which = {"InstanceTypes": [kind], "ProductDescriptions": ["Linux/UNIX"], "Filters": zones, "StartTime": now}
            history = list(every(client("ec2", spec.region), "describe_spot_price_history", "SpotPriceHistory[]", **which))
            if history:
                dearest = max(history, key=lambda one: float(one["SpotPrice"]))
                text = f"spot {kind} in {dearest['AvailabilityZone']}, {now:%Y-%m-%d %H:%M} UTC"
                found[f"{kind}-spot-hour"] = {"usd": dearest["SpotPrice"], "unit": "Hrs", "description": text}
    except Exception as error:
        sentence = of_aws(error)
        if sentence is None:
            raise
        say(f"spot prices were not read: {sentence}")
    return found
