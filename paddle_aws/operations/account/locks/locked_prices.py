"""Prices in the file that `paddle-aws lock prices` wrote."""

import json
from pathlib import Path
from typing import Any

from paddle_aws.operations.errors import BadInput, OperationError
from paddle_aws.operations.options import CLUSTER
from paddle_aws.stacks.cluster_spec import load_cluster
from paddle_settings.errors import SettingError

PRICES = Path("locks/prices.json")


def node_hour(config: Path = CLUSTER, lock: Path = PRICES) -> float | None:
    """Returns the dollars per hour of the first group's node, the price of a trainer's time; None
    if no price was read here.
    """
    try:
        group = next(iter((spec := load_cluster(config)).nodes.values()))
        price = f"{group.instance_types[0]}-{'spot-' if group.spot else ''}hour"
        return float(read_prices(lock, spec.region)["prices"][price])
    except (OperationError, SettingError, LookupError, ValueError, StopIteration):
        return None


def read_prices(lock: Path, region: str) -> dict[str, Any]:
    """Returns the file's date, source, region and dollars by price. Raises BadInput."""
    reads = "`paddle-aws lock prices` reads AWS's public price list, without credentials"
    try:
        document = json.loads(lock.read_text())
        prices = {name: str(entry["usd"]) for name, entry in document["prices"].items()}
        document = {
            "read": str(document["read"]),
            "source": str(document["source"]),
            "region": str(document["region"]),
            "prices": prices,
        }
    except FileNotFoundError:
        raise BadInput(f"{lock} does not exist, so no price is known: {reads}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(
            f"{lock} is not a file of prices: `paddle-aws lock prices` writes one"
        ) from None
    if document["region"] != region:
        raise BadInput(f"{lock} has prices of {document['region']}, not of {region}: {reads}")
    return document
