"""A node group of EKS Auto Mode: the NodeClass and the NodePool from which AWS makes nodes when pods wait for them."""

from collections.abc import Mapping, Sequence
from typing import Any

from cdk8s import App, Chart
from constructs import Construct

from k8s_charts import yaml_documents


class NodePoolChart(Chart):
    """NodeClass and NodePool.

    Args:
        name: the group's.
        machines: what `AutoModeNodes` made in AWS: role, subnets, securityGroups, placementGroups.
        instance_types: EC2 types; AWS takes the cheapest that fits the waiting pods.
        capacity: spot, on-demand or reserved.
        zones: availability zones.
        cpus: most vCPUs of all its nodes together.
        disk_gib: disk of each node, GiB.
        labels, taints: Kubernetes' own, of each node.
        tags: AWS tags of each machine.
        reservation: id of the capacity reservation that the nodes are taken from.
    """

    def __init__(
        self,
        scope: Construct,
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
    ) -> None:
        super().__init__(scope, f"{name}-node-pool")
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
        }
        wanted = {
            "kubernetes.io/arch": ["amd64"],
            "node.kubernetes.io/instance-type": list(instance_types),
            "karpenter.sh/capacity-type": [capacity],
            "topology.kubernetes.io/zone": list(zones),
        }
        template = pool["spec"]["template"]
        template["metadata"] = {"labels": dict(labels)}
        template["spec"] |= {
            "requirements": [{"key": key, "operator": "In", "values": values} for key, values in wanted.items()],
            "taints": list(taints),
        }
        yaml_documents.add(self, *map(yaml_documents.plain, (node_class, pool)))


def documents(name: str, **settings: Any) -> list[dict[str, Any]]:
    """A NodePoolChart's documents."""
    made: list[dict[str, Any]] = NodePoolChart(App(), name, **settings).to_json()
    return made
