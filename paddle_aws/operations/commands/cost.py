"""`paddle-aws cost`: what a cluster costs per month, and per run of some hours, from prices that
were read from AWS.
"""

import json as json_format
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer

from paddle_aws.operations.account.account_checks import machines
from paddle_aws.operations.commands.prices import PRICES
from paddle_aws.operations.errors import BadInput, OperationError, cli_errors
from paddle_aws.operations.options import CLUSTER, Config, Json
from paddle_aws.operations.screen import as_json, say, show
from paddle_aws.settings.errors import SettingError
from paddle_aws.stacks.cluster_spec import ClusterSpec, load_cluster

HOURS = 730
"""Hours per month, as AWS's own calculator counts them."""
SECRETS = 6
"""Two join tokens, the CA's hash, the kubeconfigs of three teams."""
ENDPOINTS = {"eks": 11, "self-managed": 10}
"""Number of interface endpoints that `network.interface_endpoints` makes in each zone."""
LEFT_OUT = (
    "taxes, discounts, support; data through NAT gateways, between zones and to the internet; "
    "stored data (EFS, S3, ECR, logs, backups, snapshots); requests to S3, KMS and Secrets "
    "Manager; the private zone, dashboards and alarms; nodes beyond `desired`; EKS Auto Mode's "
    "charge on each machine, and its own machine for add-ons; EKS's extra charge for a "
    "Kubernetes version past its standard support"
)


@dataclass(frozen=True)
class Item:
    """One line: how many of what, at which price. The price's name in the lock file ends with -hour
    or -month.
    """

    what: str
    price: str
    count: float
    always: bool = True
    """Whether it also exists between jobs."""


def cost(
    config: Config = CLUSTER,
    hours: Annotated[float, typer.Option(min=0, max=8760, help="Length of one run.")] = 1.0,
    lock: Annotated[Path, typer.Option(help="What `paddle-aws lock prices` wrote.")] = PRICES,
    json: Json = False,
) -> None:
    """Estimate a cluster's cost: itemised, a month and a run. `paddle-aws lock prices` reads the
    prices first.

    Example: paddle-aws cost cluster.yaml --hours 8
    """
    with cli_errors():
        spec = load_cluster(config)
        known = _read(lock, spec.region)
        asked = items(spec)
        for item in asked:
            # Only a machine's price: any other that AWS's list does not state clearly is unknown,
            # as is spot without credentials.
            if "." in item.price and item.price not in known["prices"] and "spot" not in item.price:
                raise BadInput(
                    f"{lock} has no price of {item.what}: `paddle-aws lock prices` reads it, if "
                    "AWS has such a type"
                )
        rows = [_row(item, known["prices"], hours) for item in asked]
        month, run = (sum(row[part] or 0 for row in rows) for part in ("month_usd", "run_usd"))
        unknown = [row["what"] for row in rows if row["month_usd"] is None]
        if json:
            sums = {"month_usd": month, "run_usd": run, "unknown": unknown, "left_out": LEFT_OUT}
            read = {name: known[name] for name in ("read", "source", "region")}
            as_json({**read, "hours": hours, "items": rows, **sums})
            return
        shown = [
            (row["usd"] or "unknown", _dollars(row["month_usd"]), _dollars(row["run_usd"]))
            for row in rows
        ]
        lines = [
            (row["what"], f"{row['count']:g}", *sums) for row, sums in zip(rows, shown, strict=True)
        ]
        columns = ("WHAT", "COUNT", "USD EACH", "USD A MONTH", f"USD IN {hours:g} H")
        show(columns, lines, right=columns[1:], folds="WHAT")
        some = "at least " if unknown else ""
        typer.echo(
            f"in all {some}{_dollars(month)} USD a month, {some}{_dollars(run)} USD in a run of "
            f"{hours:g} h"
        )
        say(f"list prices of {spec.region}, read {known['read']} ({known['source']})")
        if unknown:
            spot = (
                "; spot prices are read with AWS credentials alone"
                if any("spot" in one for one in unknown)
                else ""
            )
            say(f"unknown: {', '.join(unknown)}{spot}")
        say(f"left out: {LEFT_OUT}")


def items(spec: ClusterSpec) -> list[Item]:
    """Returns what costs money merely because it exists."""
    own, nat, cluster = spec.cluster.self_managed, spec.network.nat_gateways, spec.cluster
    gateways = nat if spec.network.existing is None else 0
    endpoints = (
        ENDPOINTS[cluster.kind] * len(spec.network.zones) if spec.network.interface_endpoints else 0
    )
    throughput = (
        spec.file_system.provisioned_mib_per_second if spec.file_system.existing is None else 0
    )
    found = [
        Item("EKS control plane", "eks-cluster-hour", not own and cluster.existing is None),
        Item("secrets: tokens, CA hash, kubeconfigs", "secret-month", SECRETS * own),
        Item("Elastic IP (cluster)", "public-ipv4-hour", cluster.elastic_ip),
        Item("NAT gateway", "nat-gateway-hour", gateways),
        Item("its public address", "public-ipv4-hour", gateways),
        Item("private endpoints of AWS's services", "vpc-endpoint-hour", endpoints),
        Item("MiB/s of the file system", "efs-provisioned-mibps-month", throughput or 0),
        Item("KMS key", "kms-key-month", spec.key.existing_arn is None),
    ]
    for group in machines(spec):
        kind = group.types[0]
        what, price = (
            (f"{kind} spot", f"{kind}-spot-hour") if group.spot else (kind, f"{kind}-hour")
        )
        auto = spec.auto and group.name.startswith("nodes.")
        count, where = (
            (group.most, f"{group.name}, while jobs run") if auto else (group.desired, group.name)
        )
        found.append(Item(f"{what} ({where})", price, count, not auto))
        found.append(
            Item(f"GiB of disk ({where})", "ebs-gp3-gb-month", count * group.disk, not auto)
        )
    return [item for item in found if item.count]


def node_hour(config: Path = CLUSTER, lock: Path = PRICES) -> float | None:
    """Returns the dollars per hour of the first group's node, the price of a trainer's time; None
    if no price was read here.
    """
    try:
        group = next(iter((spec := load_cluster(config)).nodes.values()))
        price = f"{group.instance_types[0]}-{'spot-' if group.spot else ''}hour"
        return float(_read(lock, spec.region)["prices"][price])
    except (OperationError, SettingError, LookupError, ValueError, StopIteration):
        return None


def _row(item: Item, prices: dict[str, Any], hours: float) -> dict[str, Any]:
    usd, hourly = prices.get(item.price), item.price.endswith("-hour")
    month = (
        None
        if usd is None
        else Decimal(usd) * Decimal(float(item.count)) * (HOURS if hourly else 1)
    )
    run = None if month is None else float(month * Decimal(str(hours)) / HOURS)
    month = month if item.always else month and Decimal(0)
    sums = {"usd": usd, "month_usd": None if month is None else float(month), "run_usd": run}
    return {**asdict(item), "count": float(item.count), "hourly": hourly, **sums}


def _dollars(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.2f}"


def _read(lock: Path, region: str) -> dict[str, Any]:
    reads = "`paddle-aws lock prices` reads AWS's public price list, without credentials"
    try:
        found = json_format.loads(lock.read_text())
        prices = {name: str(entry["usd"]) for name, entry in found["prices"].items()}
        found = {
            "read": str(found["read"]),
            "source": str(found["source"]),
            "region": str(found["region"]),
            "prices": prices,
        }
    except FileNotFoundError:
        raise BadInput(f"{lock} does not exist, so no price is known: {reads}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(
            f"{lock} is not a file of prices: `paddle-aws lock prices` writes one"
        ) from None
    if found["region"] != region:
        raise BadInput(f"{lock} has prices of {found['region']}, not of {region}: {reads}")
    return found
