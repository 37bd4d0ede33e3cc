"""`paddle-aws lock prices`: read from AWS's own Pricing API into a dated file, which `cost` reads.

Promises: a price is in the file only if the API gave exactly one for what was asked, in the unit that `cost` reckons with;
nothing is guessed or rounded, and the file says when and where each was read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from operations.errors import explained
from operations.screen import say

LOCK = Path("locks/prices.json")
SOURCE = "AWS Pricing API, GetProducts, on-demand list prices in US dollars"
PRICING_REGION = "us-east-1"
"""The Pricing API answers for every region from here."""


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


def prices(
    config: Annotated[Path, typer.Argument(metavar="CLUSTER", help="The cluster's settings.")] = Path("cluster.yaml"),
    out: Annotated[Path, typer.Option(help="The file to write.")] = LOCK,
) -> None:
    """Read today's list prices for a cluster's region and instance types from AWS, for `paddle-aws cost`.

    Needs AWS credentials that allow pricing:GetProducts. What the API does not answer clearly stays unknown.

    Example: paddle-aws lock prices && paddle-aws cost
    """
    with explained():
        from operations import lock_file
        from operations.aws import client
        from stacks.cluster_spec import ClusterSpec

        spec = ClusterSpec.load(config)
        kinds = {kind for group in spec.nodes.values() for kind in group.instance_types}
        if spec.cluster.self_managed:
            kinds.add(spec.cluster.instance_type)
        queries = FIXED | {f"{kind}-hour": instance(kind) for kind in sorted(kinds)}
        pricing = client("pricing", PRICING_REGION)
        read: dict[str, Any] = {}
        for name, query in queries.items():
            found = ask(pricing, query, spec.region)
            if found is not None:
                read[name] = found
        lock_file.write(out, SOURCE, {"region": spec.region, "prices": read})
        unknown = sorted(queries.keys() - read.keys())
        say(f"{len(read)} prices of {spec.region} are in {out}" + (f"; unknown stay {', '.join(unknown)}" if unknown else ""))


def ask(pricing: Any, query: Query, region: str) -> dict[str, str] | None:
    """The one price that answers a query, with its unit and AWS's own words for it.

    None where there is none or several, or where it is for another unit than we know how to reckon with.
    """
    filters = [("regionCode", region), *query.attributes]
    pages = pricing.get_paginator("get_products").paginate(
        ServiceCode=query.service,
        FormatVersion="aws_v1",
        Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters],
    )
    found = {
        (first["pricePerUnit"]["USD"], first["unit"]): first["description"]
        for page in pages
        for first in _first_tiers(page["PriceList"], query, region)
        if float(first["pricePerUnit"].get("USD", 0)) > 0
    }
    if len(found) != 1:
        return None
    ((price, unit), description) = next(iter(found.items()))
    if not re.fullmatch(query.unit, unit, re.IGNORECASE):
        return None
    return {"usd": price, "unit": unit, "description": description}


def _first_tiers(products: list[str], query: Query, region: str) -> Iterator[dict[str, Any]]:
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
