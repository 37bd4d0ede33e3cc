"""Items that cost money merely because a cluster exists."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from paddle_aws.operations.account.machines import machines
from paddle_aws.stacks.cluster_spec import ClusterSpec

SECRETS = 6
"""Two join tokens, the CA's hash, the kubeconfigs of three teams."""
ENDPOINTS = {"eks": 11, "self-managed": 10}
"""Number of interface endpoints that `network.interface_endpoints` makes in each zone."""

HOURS = 730
"""Hours per month, as AWS's own calculator counts them."""
LEFT_OUT = (
    "taxes, discounts, support; data through NAT gateways, between zones and to the internet; "
    "stored data (EFS, S3, ECR, logs, backups, snapshots); what EFS reads and writes (its elastic "
    "throughput); logs taken in (control plane, network, containers); the metrics of Container "
    "Insights (`budget`, `logs`); disks' throughput above gp3's 125 MiB/s; requests to S3, KMS and "
    "Secrets Manager; the private zone, dashboards and alarms; nodes beyond `desired`; EKS Auto "
    "Mode's charge on each machine, and its own machine for add-ons; EKS's extra charge for a "
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
    """Billed even when no job is running."""


def items(spec: ClusterSpec) -> list[Item]:
    """Returns the items that cost money merely because they exist."""
    self_managed, nat, cluster = spec.cluster.self_managed, spec.network.nat_gateways, spec.cluster
    gateways = nat if spec.network.existing is None else 0
    endpoints = (
        ENDPOINTS[cluster.kind] * len(spec.network.zones) if spec.network.interface_endpoints else 0
    )
    throughput = (
        spec.file_system.provisioned_mib_per_second if spec.file_system.existing is None else 0
    )
    rate = spec.file_system.per_unit_storage_throughput
    eks = not self_managed and cluster.existing is None
    costs = [
        Item("EKS control plane", "eks-cluster-hour", eks),
        Item("secrets: tokens, CA hash, kubeconfigs", "secret-month", SECRETS * self_managed),
        Item("Elastic IP (cluster)", "public-ipv4-hour", cluster.elastic_ip),
        Item("NAT gateway", "nat-gateway-hour", gateways),
        Item("its public address", "public-ipv4-hour", gateways),
        Item("private endpoints of AWS's services", "vpc-endpoint-hour", endpoints),
        Item("MiB/s of the file system", "efs-provisioned-mibps-month", throughput or 0),
        Item(
            f"GiB of FSx for Lustre, {rate} MB/s for each TiB",
            f"fsx-lustre-{rate}-gb-month",
            spec.file_system.storage_capacity_gib * spec.file_system.lustre,
        ),
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
        costs.append(Item(f"{what} ({where})", price, count, not auto))
        costs.append(
            Item(f"GiB of disk ({where})", "ebs-gp3-gb-month", count * group.disk, not auto)
        )
    return [item for item in costs if item.count]


def estimate(
    asked: Iterable[Item], prices: Mapping[str, str], hours: float
) -> list[dict[str, Any]]:
    """Returns each item with its price and its dollars in a month and in a run of some hours; None
    where the price is unknown.
    """
    rows = []
    for item in asked:
        usd, hourly = prices.get(item.price), item.price.endswith("-hour")
        month = run = None
        if usd is not None:
            whole = Decimal(usd) * Decimal(float(item.count)) * (HOURS if hourly else 1)
            month = float(whole) if item.always else 0.0
            run = float(whole * Decimal(str(hours)) / HOURS)
        sums = {"usd": usd, "month_usd": month, "run_usd": run}
        rows.append({**asdict(item), "count": float(item.count), "hourly": hourly, **sums})
    return rows
