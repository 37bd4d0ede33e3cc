"""Lock files: what was read at a source, with its date.

A file always begins with `read` (an ISO date, UTC) and `source`, and is written whole or stays as
it was.
"""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paddle_aws.operations.errors import BadInput, OperationError
from paddle_aws.operations.options import CLUSTER
from paddle_aws.stacks.cluster_spec import load_cluster
from paddle_settings.errors import SettingError

PRICES = Path("locks/prices.json")


def write(path: Path, source: str, content: Mapping[str, Any]) -> None:
    """Writes `content` after the date and the source."""
    document = {"read": datetime.now(UTC).strftime("%Y-%m-%d"), "source": source, **content}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(document, indent=1) + "\n")
    part.replace(path)


def node_hour() -> float | None:
    """Returns the dollars per hour of the first group's node, the price of a trainer's time; None
    if no price was read here.
    """
    try:
        group = next(iter((spec := load_cluster(CLUSTER)).nodes.values()))
        price = f"{group.instance_types[0]}-{'spot-' if group.spot else ''}hour"
        return float(read_prices(PRICES, spec.region)["prices"][price])
    except (OperationError, SettingError, LookupError, ValueError, StopIteration):
        return None


def read_prices(lock: Path, region: str) -> dict[str, Any]:
    """Returns the date, source, region and dollars by price of what `paddle-aws lock prices` wrote.
    Raises BadInput.
    """
    reads = "`paddle-aws lock prices` reads AWS's public price list, without credentials"
    try:
        content = json.loads(lock.read_text())
        document = {name: str(content[name]) for name in ("read", "source", "region")}
        prices = {name: str(entry["usd"]) for name, entry in content["prices"].items()}
    except FileNotFoundError:
        raise BadInput(f"{lock} does not exist, so no price is known: {reads}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(
            f"{lock} is not a file of prices: `paddle-aws lock prices` writes one"
        ) from None
    if document["region"] != region:
        raise BadInput(f"{lock} has prices of {document['region']}, not of {region}: {reads}")
    return {**document, "prices": prices}
