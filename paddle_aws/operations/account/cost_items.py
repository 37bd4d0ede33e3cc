"""Items that cost money merely because a cluster exists."""

from dataclasses import dataclass

from paddle_aws.operations.account.machines import machines
from paddle_aws.stacks.cluster_spec import ClusterSpec

SECRETS = 6
"""Two join tokens, the CA's hash, the kubeconfigs of three teams."""
ENDPOINTS = {"eks": 11, "self-managed": 10}
"""Number of interface endpoints that `network.interface_endpoints` makes in each zone."""


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
    costs = [
        Item(
            "EKS control plane", "eks-cluster-hour", not self_managed and cluster.existing is None
        ),
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
