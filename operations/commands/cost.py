"""`paddle-aws cost`: what a cluster costs a month, and a run of some hours, from prices that were read at AWS."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from operations.commands.prices import PRICES
from operations.errors import BadInput, cli_errors
from operations.screen import Json, as_json, say, show
from stacks.cluster_spec import TUNNEL_TYPE

if TYPE_CHECKING:
    from stacks.cluster_spec import ClusterSpec

HOURS = 730
"""Hours of a month, as AWS's own calculator counts."""
ROOT_DISK = 30
"""GiB that a self-managed control plane boots from."""
TUNNEL_DISK = 8
"""GiB that the machine of a tunnel boots from."""
SECRETS = 6
"""Two join tokens, the CA's hash, the kubeconfigs of three teams."""
ENDPOINTS = {"eks": 11, "self-managed": 10}
"""Interface endpoints, one in each zone, that `network.interface_endpoints` makes."""
LEFT_OUT = (
    "taxes, discounts, support; data through NAT gateways, between zones and to the internet; stored data (EFS, S3, ECR, "
    "logs, backups, snapshots); requests to S3, KMS and Secrets Manager; the private zone, dashboards and alarms; nodes beyond "
    "`desired`; EKS's extra charge for a Kubernetes version past its standard support"
)


@dataclass(frozen=True)
class Item:
    """One line: how many of what, at which price."""

    what: str
    price: str
    """The price's name in the lock file."""
    count: float
    hourly: bool
    """Whether it costs by the hour; else by the month."""


def cost(
    config: Annotated[Path, typer.Argument(metavar="CLUSTER", help="The cluster's settings.")] = Path("cluster.yaml"),
    hours: Annotated[float, typer.Option(min=0, max=8760, help="Length of one run.")] = 1.0,
    lock: Annotated[Path, typer.Option(help="What `paddle-aws lock prices` wrote.")] = PRICES,
    json: Json = False,
) -> None:
    """Estimate a cluster's cost: itemised, a month and a run. `paddle-aws lock prices` reads the prices first.

    Example: paddle-aws cost cluster.yaml --hours 8
    """
    with cli_errors():
        from stacks.cluster_spec import ClusterSpec

        spec = ClusterSpec.load(config)
        known = _read(lock, spec.region)
        asked = items(spec)
        for item in asked:
            # A machine's: what else AWS's list does not say clearly is unknown, and so is spot without credentials.
            if "." in item.price and item.price not in known["prices"] and "spot" not in item.price:
                raise BadInput(f"{lock} has no price of {item.what}: `paddle-aws lock prices` reads it, if AWS has such a type")
        rows = [_row(item, known["prices"], hours) for item in asked]
        month, run = (sum(row[part] or 0 for row in rows) for part in ("month_usd", "run_usd"))
        unknown = [row["what"] for row in rows if row["month_usd"] is None]
        if json:
            sums = {"month_usd": month, "run_usd": run, "unknown": unknown, "left_out": LEFT_OUT}
            read = {name: known[name] for name in ("read", "source", "region")}
            as_json({**read, "hours": hours, "items": rows, **sums})
            return
        lines = [
            (row["what"], f"{row['count']:g}", row["usd"] or "unknown", _dollars(row["month_usd"]), _dollars(row["run_usd"]))
            for row in rows
        ]
        columns = ("WHAT", "COUNT", "USD EACH", "USD A MONTH", f"USD IN {hours:g} H")
        show(columns, lines, right=columns[1:], folds="WHAT")
        some = "at least " if unknown else ""
        typer.echo(f"in all {some}{_dollars(month)} USD a month, {some}{_dollars(run)} USD in a run of {hours:g} h")
        say(f"list prices of {spec.region}, read {known['read']} ({known['source']})")
        if unknown:
            spot = "; spot prices are read with AWS credentials alone" if any("spot" in one for one in unknown) else ""
            say(f"unknown: {', '.join(unknown)}{spot}")
        say(f"left out: {LEFT_OUT}")


def items(spec: ClusterSpec) -> list[Item]:
    """What costs money by its mere existence."""
    found = []
    if spec.cluster.self_managed:
        found += _own_control_plane(spec)
    elif spec.cluster.existing is None:
        found.append(Item("EKS control plane", "eks-cluster-hour", 1, True))
    if spec.network.existing is None and spec.network.nat_gateways:
        found.append(Item("NAT gateway", "nat-gateway-hour", spec.network.nat_gateways, True))
        found.append(Item("its public address", "public-ipv4-hour", spec.network.nat_gateways, True))
    if spec.network.interface_endpoints:
        count = ENDPOINTS[spec.cluster.kind] * len(spec.network.zones)
        found.append(Item("private endpoints of AWS's services", "vpc-endpoint-hour", count, True))
    if spec.file_system.existing is None and spec.file_system.provisioned_mib_per_second:
        throughput = spec.file_system.provisioned_mib_per_second
        found.append(Item("MiB/s of the file system", "efs-provisioned-mibps-month", throughput, False))
    if spec.key.existing_arn is None:
        found.append(Item("KMS key", "kms-key-month", 1, False))
    for name, group in spec.nodes.items():
        kind = group.instance_types[0]
        spot = "spot" if group.spot else ""
        found.append(Item(f"{kind} {spot}".strip() + f" (nodes.{name})", f"{kind}-{spot and 'spot-'}hour", group.desired, True))
        found.append(Item(f"GiB of disk (nodes.{name})", "ebs-gp3-gb-month", group.desired * group.volume_gib, False))
    if spec.cluster.has_tunnel:
        found.append(Item(f"{TUNNEL_TYPE} (cluster.tunnel)", f"{TUNNEL_TYPE}-hour", 1, True))
        found.append(Item("GiB of disk (cluster.tunnel)", "ebs-gp3-gb-month", TUNNEL_DISK, False))
    return found


def _own_control_plane(spec: ClusterSpec) -> list[Item]:
    """The machine that takes the place of EKS's control plane, and what is its own."""
    kind = spec.cluster.instance_type
    found = [
        Item(f"{kind} (control plane)", f"{kind}-hour", 1, True),
        Item("GiB of disk and state volume (control plane)", "ebs-gp3-gb-month", ROOT_DISK + spec.cluster.volume_gib, False),
        Item("secrets: tokens, CA hash, kubeconfigs", "secret-month", SECRETS, False),
    ]
    if spec.cluster.elastic_ip:
        found.append(Item("Elastic IP (control plane)", "public-ipv4-hour", 1, True))
    return found


def _row(item: Item, prices: dict[str, Any], hours: float) -> dict[str, Any]:
    usd = prices.get(item.price)
    if usd is None:
        return {**asdict(item), "usd": None, "month_usd": None, "run_usd": None}
    month = Decimal(usd) * Decimal(str(item.count)) * (HOURS if item.hourly else 1)
    run = month * Decimal(str(hours)) / HOURS
    return {**asdict(item), "usd": usd, "month_usd": float(month), "run_usd": float(run)}


def _dollars(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.2f}"


def _read(lock: Path, region: str) -> dict[str, Any]:
    reads = "`paddle-aws lock prices` reads AWS's public price list, without credentials"
    try:
        found = json_format.loads(lock.read_text())
        prices = {name: str(entry["usd"]) for name, entry in found["prices"].items()}
        found = {"read": str(found["read"]), "source": str(found["source"]), "region": str(found["region"]), "prices": prices}
    except FileNotFoundError:
        raise BadInput(f"{lock} does not exist, so no price is known: {reads}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{lock} is no file of prices: `paddle-aws lock prices` writes one") from None
    if found["region"] != region:
        raise BadInput(f"{lock} has prices of {found['region']}, not of {region}: {reads}")
    return found
