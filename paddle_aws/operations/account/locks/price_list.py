"""List prices, from AWS's public files, which need no credentials.

Promises: a price is named only if AWS's list has exactly one for the query, in the unit that `cost`
calculates with; nothing is guessed or rounded.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import NamedTuple

import yaml

from paddle_aws.operations.account.aws import client, list_all
from paddle_aws.operations.errors import BadInput, Failed, Unreachable, translate_errors
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_settings.addresses import hide_secrets

ABOVE_THE_TABLE = 5
"""Lines of a file above its table, which describe the file."""


class Query(NamedTuple):
    """Selects the rows of a service's price list that hold a price, as prices.yaml defines."""

    service: str
    usage: str
    """Regular expression for the usage type's last part (its first part names the region)."""
    unit: str
    """Regular expression for the unit: `cost` does not calculate with a price for any other
    unit.
    """
    columns: Mapping[str, str] = MappingProxyType({})

    def matches(self, row: dict[str, str], region: str) -> bool:
        # `USW2-BoxUsage:m5.large`; in us-east-1 some have no prefix, and some services write the
        # region out.
        usage = rf"([A-Z]{{2,4}}\d?-|{re.escape(region)}-)?{self.usage}"
        return (
            re.fullmatch(usage, row["usageType"]) is not None
            and self.columns.items() <= row.items()
        )


def queries(kinds: Iterable[str], lustre_rate: int | None = None) -> dict[str, Query]:
    """Returns queries by price name: those that do not depend on the settings, an on-demand hour of
    each machine type, and FSx for Lustre at a rate in MB/s for each TiB.
    """
    rows = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    by_price = {name: Query(**query) for name, query in rows["fixed"].items()}
    for kind in kinds:
        query = Query(**rows["machine"])
        columns = {**query.columns, "Instance Type": kind}
        by_price[f"{kind}-hour"] = query._replace(
            usage=f"BoxUsage:{re.escape(kind)}", columns=columns
        )
    if lustre_rate is not None:
        query = Query(**rows["lustre"])
        by_price[f"fsx-lustre-{lustre_rate}-gb-month"] = query._replace(
            usage=f"{query.usage}{lustre_rate}"
        )
    return by_price


def read_prices(
    files: str, region: str, asked: dict[str, Query]
) -> tuple[dict[str, dict[str, str]], set[str]]:
    """Returns the price of each query that has exactly one, in a unit that `cost` knows, and every
    instance type of the list.
    """
    prices: dict[str, dict[tuple[str, str], str]] = {name: {} for name in asked}
    types: set[str] = set()
    for service in dict.fromkeys(query.service for query in asked.values()):
        try:
            for row in _rows(files.rstrip("/"), service, region):
                types.add(row.get("Instance Type", ""))
                for name, query in asked.items():
                    if query.service == service and query.matches(row, region):
                        prices[name][(row["PricePerUnit"], row["Unit"])] = row["PriceDescription"]
        except (ValueError, KeyError, TypeError, csv.Error):
            raise Failed(
                f"the price list of {service} at {hide_secrets(files)} is not in AWS's format"
            ) from None
    clear = {
        name: {"usd": usd, "unit": unit, "description": description}
        for name, offers in prices.items()
        for (usd, unit), description in offers.items()
        if len(offers) == 1 and re.fullmatch(asked[name].unit, unit, re.IGNORECASE)
    }
    return clear, types


def _rows(files: str, service: str, region: str) -> Iterator[dict[str, str]]:
    """Yields a service's on-demand prices in a region, by the columns of AWS's table: first tiers
    only, without free offers.
    """
    # Imported here: it takes longer to load than everything that other commands need.
    from paddle_aws.operations.account.download import content, download

    index = json.loads(content(f"{files}/offers/v1.0/aws/{service}/current/region_index.json"))
    if region not in (regions := index["regions"]):
        raise BadInput(f"region is {region}: AWS's price list of {service} has no such region")
    url = files + re.sub(r"\.json$", ".csv", regions[region]["currentVersionUrl"])
    say(f"reading the prices of {service} in {region}")
    with TemporaryDirectory() as folder:
        path = Path(folder, "index.csv")
        download(url, path, None)
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(islice(file, ABOVE_THE_TABLE, None)):
                whose = (row["TermType"], row["Currency"], row["StartingRange"])
                here = row.get("Region Code", region) == region
                if here and whose == ("OnDemand", "USD", "0") and float(row["PricePerUnit"]) > 0:
                    yield row


def read_spot_prices(spec: ClusterSpec, kinds: list[str]) -> dict[str, dict[str, str]]:
    """Returns the current prices of spot instances in the most expensive of the cluster's zones;
    none without credentials.
    """
    prices: dict[str, dict[str, str]] = {}
    now = datetime.now(UTC)
    asked = {
        "ProductDescriptions": ["Linux/UNIX"],
        "Filters": [{"Name": "availability-zone", "Values": list(spec.network.zones)}],
        "StartTime": now,
    }
    try:
        with translate_errors():
            for kind in kinds:
                ec2, path = client("ec2", spec.region), "SpotPriceHistory[]"
                which = {"InstanceTypes": [kind], **asked}
                history = list(list_all(ec2, "describe_spot_price_history", path, **which))
                if history:
                    dearest = max(history, key=lambda offer: float(offer["SpotPrice"]))
                    text = f"spot {kind} in {dearest['AvailabilityZone']}, {now:%Y-%m-%d %H:%M} UTC"
                    price = {"usd": dearest["SpotPrice"], "unit": "Hrs", "description": text}
                    prices[f"{kind}-spot-hour"] = price
    except Unreachable as error:
        say(f"spot prices were not read: {error}")
    return prices
