"""A node group of EKS Auto Mode: the NodeClass and NodePool from which AWS creates nodes when pods
wait for them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from k8s_charts import yaml_documents


def documents(
    name: str,
    *,
    machines: Mapping[str, Any],
    instance_types: Sequence[str],
    capacity: str,
    zones: Sequence[str],
    cpus: int,
    disk_gib: int,
    labels: Mapping[str, str],
    taints: Sequence[Mapping[str, str]],
    tags: Mapping[str, str],
    reservation: str | None = None,
    interfaces: Sequence[tuple[int, int, str]] = (),
) -> list[dict[str, Any]]:
    """Returns NodeClass and NodePool of the group `name`.

    Args:
        machines: what `AutoModeNodes` made in AWS: role, subnets, securityGroups, placementGroups.
        instance_types: EC2 types; AWS takes the cheapest that fits the waiting pods.
        capacity: spot, on-demand or reserved.
        cpus: most vCPUs of all its nodes together.
        disk_gib: disk of each node, GiB.
        tags: AWS tags of each machine.
        reservation: id of the capacity reservation that the nodes are taken from.
        interfaces: network interfaces of a machine with EFA, as (card, device, type); the first one
            has the pods' addresses.
    """
    node_class, pool = yaml_documents.template("node_pool.yaml", name=name, cpus=cpus)
    group = machines["placementGroups"].get(name)
    node_class["spec"] |= {
        "role": machines["role"],
        "subnetSelectorTerms": [{"id": subnet} for subnet in machines["subnets"]],
        "securityGroupSelectorTerms": [{"id": group} for group in machines["securityGroups"]],
        "ephemeralStorage": {"size": f"{disk_gib}Gi"},
        "placementGroupSelector": {"name": group} if group else None,
        "capacityReservationSelectorTerms": [{"id": reservation}] if reservation else None,
        "tags": dict(tags),
        "advancedNetworking": {"networkInterfaces": _interfaces(interfaces)}
        if interfaces
        else None,
    }
    requirements = {
        "kubernetes.io/arch": ["amd64"],
        "node.kubernetes.io/instance-type": list(instance_types),
        "karpenter.sh/capacity-type": [capacity],
        "topology.kubernetes.io/zone": list(zones),
    }
    template = pool["spec"]["template"]
    template["metadata"] = {"labels": dict(labels)}
    template["spec"] |= {
        "requirements": [
            {"key": key, "operator": "In", "values": values} for key, values in requirements.items()
        ],
        "taints": list(taints),
    }
    return [yaml_documents.plain(document) for document in (node_class, pool)]


def _interfaces(interfaces: Sequence[tuple[int, int, str]]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [
        {"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind}
        for card, device, kind in interfaces
    ]
    # EKS adds no address to these machines later: one prefix serves sixteen pods.
    items[0]["secondaryIPv4PrefixCount"] = 1
    return items
