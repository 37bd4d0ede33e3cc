"""`paddle-aws lock add-ons` and `lock prices`: what AWS itself says, read into a dated file.

Promises: a version is in the file only if EKS called it, and no other, the default for that Kubernetes version; a price only
if the Pricing API gave exactly one for what was asked, in the unit that `cost` reckons with. Nothing is guessed or rounded.
A file always begins with `read` (an ISO date, UTC) and `source`, and is there whole or as it was before.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from operations.aws import client, every
from operations.errors import Failed, explained
from operations.screen import say

Config = Annotated[Path, typer.Argument(metavar="CLUSTER", help="The cluster's settings.")]
Out = Annotated[Path, typer.Option(help="The file to write.")]

ADD_ONS = Path("locks/add-ons.json")
ADD_ONS_SOURCE = "EKS, DescribeAddonVersions: the default version for each Kubernetes version"
PRICES = Path("locks/prices.json")
PRICES_SOURCE = "AWS Pricing API, GetProducts, on-demand list prices in US dollars"
PRICING_REGION = "us-east-1"
"""The Pricing API answers for every region from here."""


def write(path: Path, source: str, content: Mapping[str, Any]) -> None:
    """Writes `content` behind the date and the source."""
    document = {"read": datetime.now(UTC).strftime("%Y-%m-%d"), "source": source, **content}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(document, indent=1) + "\n")
    part.replace(path)


def add_ons(config: Config = Path("cluster.yaml"), out: Out = ADD_ONS) -> None:
    """Read the default versions of EKS's add-ons in a cluster's region, so that every deploy takes the same ones.

    Needs AWS credentials that allow eks:DescribeAddonVersions. Versions in cluster.addons go before those of the file.

    Example: paddle-aws lock add-ons && cdk diff
    """
    with explained():
        from stacks.cluster_spec import ADDONS, KUBERNETES_VERSIONS, ClusterSpec

        region = ClusterSpec.load(config).region
        eks = client("eks", region)
        read = {version: defaults(eks, version, ADDONS) for version in KUBERNETES_VERSIONS}
        if not any(read.values()):
            raise Failed(f"EKS in {region} names no default version of any add-on: {out} stays as it is")
        write(out, ADD_ONS_SOURCE, {"region": region, "versions": read})
        unknown = sorted(f"{name} for {version}" for version, found in read.items() for name in ADDONS if name not in found)
        count = sum(map(len, read.values()))
        say(f"{count} versions are in {out}" + (f"; EKS names no default of {', '.join(unknown)}" if unknown else ""))


def defaults(eks: Any, kubernetes_version: str, names: tuple[str, ...]) -> dict[str, str]:
    """Add-on: the version that EKS takes for clusters of `kubernetes_version` where none is named."""
    found: dict[str, str] = {}
    for name in names:
        asked = {"addonName": name, "kubernetesVersion": kubernetes_version}
        versions = every(eks, "describe_addon_versions", "addons[].addonVersions[]", **asked)
        default = {version["addonVersion"] for version in versions if _is_default(version, kubernetes_version)}
        if len(default) == 1:
            found[name] = default.pop()
    return found


def _is_default(version: Any, kubernetes_version: str) -> bool:
    return any(
        match.get("clusterVersion") == kubernetes_version and match.get("defaultVersion") for match in version["compatibilities"]
    )


@dataclass(frozen=True)
class Query:
    """How one price is asked for: the API's service, attributes that have to be equal, and the usage type's end."""

    service: str
    attributes: tuple[tuple[str, str], ...]
    usage: str
    """Regular expression for the usage type's last part (its first part names the region)."""
    unit: str
    """Regular expression for the unit: a price for anything else is not the one that `cost` reckons with."""


HOUR, GIB_MONTH = "Hrs|Hours?", "GB-Mo"
FIXED = {
    "eks-cluster-hour": Query("AmazonEKS", (), r"AmazonEKS-Hours:perCluster", HOUR),
    "nat-gateway-hour": Query("AmazonEC2", (("productFamily", "NAT Gateway"),), r"NatGateway-Hours", HOUR),
    "nat-gateway-gb": Query("AmazonEC2", (("productFamily", "NAT Gateway"),), r"NatGateway-Bytes", "GB"),
    "public-ipv4-hour": Query("AmazonVPC", (), r"PublicIPv4:InUseAddress", HOUR),
    "vpc-endpoint-hour": Query("AmazonVPC", (), r"VpcEndpoint-Hours", HOUR),
    "ebs-gp3-gb-month": Query(
        "AmazonEC2", (("productFamily", "Storage"), ("volumeApiName", "gp3")), r"EBS:VolumeUsage\.gp3", GIB_MONTH
    ),
    "efs-standard-gb-month": Query("AmazonEFS", (), r"TimedStorage-ByteHrs", GIB_MONTH),
    "efs-provisioned-mibps-month": Query("AmazonEFS", (), r"ProvisionedTP-MiBpsHrs", "MiBps-Mo"),
    "s3-standard-gb-month": Query("AmazonS3", (), r"TimedStorage-ByteHrs", GIB_MONTH),
    "kms-key-month": Query("awskms", (), r"KMS-Keys", "Keys"),
    "secret-month": Query("AWSSecretsManager", (), r"AWSSecretsManager-Secrets", "Secrets"),
}


def instance(kind: str) -> Query:
    """An on-demand Linux instance, an hour."""
    attributes = (
        ("instanceType", kind),
        ("operatingSystem", "Linux"),
        ("tenancy", "Shared"),
        ("preInstalledSw", "NA"),
        ("capacitystatus", "Used"),
    )
    return Query("AmazonEC2", attributes, rf"BoxUsage:{re.escape(kind)}", HOUR)


def prices(config: Config = Path("cluster.yaml"), out: Out = PRICES) -> None:
    """Read today's list prices for a cluster's region and instance types from AWS, for `paddle-aws cost`.

    Needs AWS credentials that allow pricing:GetProducts. What the API does not answer clearly stays unknown.

    Example: paddle-aws lock prices && paddle-aws cost
    """
    with explained():
        from stacks.cluster_spec import ClusterSpec

        spec = ClusterSpec.load(config)
        kinds = {kind for group in spec.nodes.values() for kind in group.instance_types}
        if spec.cluster.self_managed:
            kinds.add(spec.cluster.instance_type)
        queries = FIXED | {f"{kind}-hour": instance(kind) for kind in sorted(kinds)}
        pricing = client("pricing", PRICING_REGION)
        found = {name: ask(pricing, query, spec.region) for name, query in queries.items()}
        read = {name: price for name, price in found.items() if price is not None}
        write(out, PRICES_SOURCE, {"region": spec.region, "prices": read})
        unknown = sorted(queries.keys() - read.keys())
        say(f"{len(read)} prices of {spec.region} are in {out}" + (f"; unknown stay {', '.join(unknown)}" if unknown else ""))


def ask(pricing: Any, query: Query, region: str) -> dict[str, str] | None:
    """The one price that answers a query, with its unit and AWS's own words for it.

    None where there is none or several, or where it is for another unit than we know how to reckon with.
    """
    filters = [("regionCode", region), *query.attributes]
    asked = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters]
    which = {"ServiceCode": query.service, "FormatVersion": "aws_v1", "Filters": asked}
    products: Iterator[str] = every(pricing, "get_products", "PriceList[]", **which)
    found = {
        (first["pricePerUnit"]["USD"], first["unit"]): first["description"]
        for first in _first_tiers(products, query, region)
        if float(first["pricePerUnit"].get("USD", 0)) > 0
    }
    if len(found) != 1:
        return None
    ((price, unit), description) = next(iter(found.items()))
    if not re.fullmatch(query.unit, unit, re.IGNORECASE):
        return None
    return {"usd": price, "unit": unit, "description": description}


def _first_tiers(products: Iterator[str], query: Query, region: str) -> Iterator[dict[str, Any]]:
    """On-demand prices of the products whose usage type fits; of tiers, the first."""
    for text in products:
        product = json.loads(text)
        usage = product["product"]["attributes"].get("usagetype", "")
        # `USW2-BoxUsage:m5.large`; in us-east-1 some have no prefix, and some services write the region out.
        if not re.fullmatch(rf"([A-Z]{{2,4}}\d?-|{re.escape(region)}-)?{query.usage}", usage):
            continue
        for term in product["terms"].get("OnDemand", {}).values():
            for dimension in term["priceDimensions"].values():
                if dimension.get("beginRange", "0") == "0":
                    yield dimension
