"""Where a job's pods may run: node labels, taints, zone, spot nodes, GPUs, and their spread over hosts."""

from __future__ import annotations

from typing import Any

from cdk8s_plus_33 import k8s

from k8s_charts import names
from k8s_charts.spec import TrainingJob

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
CAPACITY_TYPE = "eks.amazonaws.com/capacityType"
"""EKS labels the nodes of its managed groups with SPOT or ON_DEMAND."""
GPU = "nvidia.com/gpu"


def of(job: TrainingJob, role: names.Role, *, gpus: bool, spread: bool) -> dict[str, Any]:
    """Fields of the spec of one role's pods."""
    scheduling = job.scheduling
    selector = dict(scheduling.node_selector)
    if scheduling.zone is not None:
        selector[ZONE] = scheduling.zone
    tolerations = [
        k8s.Toleration(key=found.key, operator=found.operator, value=found.value, effect=found.effect)
        for found in scheduling.tolerations
    ]
    if gpus:
        selector |= job.gpus.node_selector
        # Nodes with GPUs are commonly tainted, so that nothing else takes their cores.
        tolerations.append(k8s.Toleration(key=GPU, operator="Exists", effect="NoSchedule"))
    if scheduling.spot != "avoid":
        tolerations.append(k8s.Toleration(key=CAPACITY_TYPE, operator="Equal", value="SPOT", effect="NoSchedule"))
    return {
        "node_selector": selector or None,
        "tolerations": tolerations or None,
        "affinity": _capacity_type(scheduling.spot),
        "topology_spread_constraints": [_over_hosts(job, role)] if spread else None,
        "priority_class_name": scheduling.priority_class,
    }


def _capacity_type(spot: str) -> k8s.Affinity | None:
    if spot == "allow":
        return None
    term = k8s.NodeSelectorRequirement(key=CAPACITY_TYPE, operator="In" if spot == "require" else "NotIn", values=["SPOT"])
    required = k8s.NodeSelector(node_selector_terms=[k8s.NodeSelectorTerm(match_expressions=[term])])
    return k8s.Affinity(node_affinity=k8s.NodeAffinity(required_during_scheduling_ignored_during_execution=required))


def _over_hosts(job: TrainingJob, role: names.Role) -> k8s.TopologySpreadConstraint:
    """Instead of the tutorials' host ports, which kept two trainers off one node as a side effect."""
    return k8s.TopologySpreadConstraint(
        max_skew=1,
        topology_key=HOST,
        # A wish by default: on a cluster of one node the job still runs.
        when_unsatisfiable="DoNotSchedule" if job.scheduling.spread == "require" else "ScheduleAnyway",
        label_selector=k8s.LabelSelector(match_labels=names.labels(job, role)),
    )
