"""Where and when a job's pods run: resources, node labels, taints, zone, spot nodes, GPUs, spread,
and gang schedulers.
"""

from collections.abc import Mapping
from typing import Any

from constructs import Construct

from k8s_charts import names, yaml_documents
from k8s_charts.spec import TrainingJob
from k8s_charts.spec.groups import ZONE, Resources
from k8s_charts.spec.value_types import total

Object = dict[str, Any]
CAPACITY_TYPE = "eks.amazonaws.com/capacityType", "SPOT"
"""EKS labels the nodes of its managed groups with SPOT or ON_DEMAND."""
AUTO_CAPACITY_TYPE = "karpenter.sh/capacity-type", "spot"
"""EKS Auto Mode's nodes have this label."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GPU = "nvidia.com/gpu"
EFA = "vpc.amazonaws.com/efa"
EFA_VARIABLES = {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}
EFA_PAGES = {"hugepages-2Mi": "5120Mi"}
"""Resources of a pod besides its adapters, according to the EKS user guide's page on training with
EFA.
"""


def requirements(
    resources: Resources, gpus: int = 0, efa: int = 0, *, auto: bool = False
) -> Object:
    """Returns requests and limits, which are equal: the pod is "Guaranteed", the last to be evicted
    when a node runs short. `auto`: EKS Auto Mode makes the nodes.
    """
    amounts = {
        "cpu": resources.cpu,
        "memory": resources.memory,
        "ephemeral-storage": resources.scratch,
    }
    amounts |= {GPU: str(gpus)} if gpus else {}
    # Karpenter takes every machine for one without huge pages, and would make none for a pod that
    # asks for some (aws/karpenter-provider-aws#3315): libfabric then uses ordinary pages.
    amounts |= {EFA: str(efa), **({} if auto else EFA_PAGES)} if efa else {}
    return {"limits": amounts, "requests": amounts}


def placement(job: TrainingJob, role: names.Role, *, gpus: bool, auto: bool) -> Object:
    """Returns fields of a pod's spec; data job pods are not spread. `auto`: EKS Auto Mode makes the
    nodes.
    """
    settings, (capacity, spare) = job.scheduling, AUTO_CAPACITY_TYPE if auto else CAPACITY_TYPE
    selector = dict(settings.node_selector)
    if settings.zone is not None:
        selector[ZONE] = settings.zone
    tolerations = [taint.model_dump() for taint in settings.tolerations]
    if gpus:
        selector |= job.gpus.node_selector
        # Nodes with GPUs are commonly tainted, so that nothing else uses their cores.
        tolerations.append({"key": GPU, "operator": "Exists", "effect": "NoSchedule"})
    if settings.spot != "avoid":
        tolerations.append(
            {"key": capacity, "operator": "Equal", "value": spare, "effect": "NoSchedule"}
        )
    # Replaces the tutorials' host ports, which kept two trainers off one node as a side effect.
    over_hosts = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        # A preference by default: on a cluster of one node the job still runs.
        "whenUnsatisfiable": "DoNotSchedule" if settings.spread == "require" else "ScheduleAnyway",
        "labelSelector": {"matchLabels": names.labels(job, role)},
    }
    return {
        "nodeSelector": selector or None,
        "tolerations": tolerations or None,
        "affinity": _capacity_type(settings.spot, capacity, spare),
        "topologySpreadConstraints": None if role in ("data", "environment") else [over_hosts],
        "priorityClassName": settings.priority_class,
    }


def _capacity_type(spot: str, capacity: str, spare: str) -> Object | None:
    if spot == "allow":
        return None
    term = {"key": capacity, "operator": "In" if spot == "require" else "NotIn", "values": [spare]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    return {"nodeAffinity": {_REQUIRED: required}}


def merge_affinity(
    affinity: Mapping[str, Any], required_affinity: Mapping[str, Any] | None
) -> Object:
    """Returns `affinity` with the node affinity that `scheduling` requires."""
    if required_affinity is None:
        return dict(affinity)
    node = dict(affinity.get("nodeAffinity") or {})
    required = node.get(_REQUIRED) or {"nodeSelectorTerms": [{}]}
    (required_term,) = required_affinity["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"]
    # A node needs to match only one of the terms, so each gets our expressions.
    terms = [
        {
            **term,
            "matchExpressions": [
                *term.get("matchExpressions", ()),
                *required_term["matchExpressions"],
            ],
        }
        for term in required["nodeSelectorTerms"]
    ]
    return {**affinity, "nodeAffinity": {**node, _REQUIRED: {"nodeSelectorTerms": terms}}}


def _drop_unset(values: Object) -> Object:
    return {name: value for name, value in values.items() if value is not None}


def queue_labels(job: TrainingJob) -> dict[str, str]:
    """Returns the labels of the Job object by which Kueue admits it."""
    queue, priority = job.gang.queue, job.gang.priority
    labels = {"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": priority}
    return _drop_unset(labels) if job.gang.kind == "kueue" else {}


def add_pod_group(scope: Construct, job: TrainingJob, *, members: int, with_gpus: int) -> None:
    """Adds Volcano's PodGroup of `members` pods, if the job asks for one; it has the job's name."""
    if job.gang.kind != "volcano":
        return
    gpus = str(job.gpus.count * with_gpus) if job.gpus.count else None
    amounts = {
        "cpu": total(job.resources.cpu, members),
        "memory": total(job.resources.memory, members),
        GPU: gpus,
    }
    settings = {"queue": job.gang.queue, "priorityClassName": job.gang.priority}
    spec = {"minMember": members, "minResources": _drop_unset(amounts), **_drop_unset(settings)}
    metadata = {"name": job.name, "namespace": job.namespace, "labels": names.labels(job)}
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": spec,
    }
    yaml_documents.add(scope, group)
