"""What a cluster needs once, before its first job: documents that an administrator applies."""

import json
from typing import Any

from operations.cluster.cluster import Object
from operations.errors import BadInput
from stacks.cluster_spec import ClusterSpec, most_vcpus


def documents(spec: ClusterSpec, auto_mode: str) -> list[Object]:
    """In the order in which they are applied; `auto_mode`: the deployed nodes stack's output of that name.

    Raises BadInput where compute is auto and that output is missing.
    """
    # Here, not above: cdk8s starts Node, which `paddle-aws --help` need not wait for.
    from k8s_charts import yaml_documents

    groups, namespace = spec.nodes.values(), spec.jobs.namespace
    found = yaml_documents.template("deployers.yaml", namespace=namespace)
    if any(group.gpu for group in groups) and not spec.auto:
        found += yaml_documents.template("nvidia_device_plugin.yaml")
    if any(group.efa for group in groups):
        found += yaml_documents.template("efa_device_plugin.yaml")
    if spec.auto:
        if not auto_mode:
            raise BadInput(
                "compute is auto, and no output AutoMode is deployed: run `cdk deploy --all --outputs-file outputs.json`"
            )
        found += [*yaml_documents.template("auto_mode.yaml"), *_node_pools(spec, json.loads(auto_mode))]
    if spec.jobs.queue:
        cores = sum(group.max * (min(most_vcpus(kind) or 1 for kind in group.instance_types) - 1) for group in groups)
        gpus = sum(group.max * group.gpus for group in groups)
        found += yaml_documents.template("queue.yaml", queue=spec.jobs.queue, namespace=namespace, cpus=cores, gpus=gpus)
    return found


def _node_pools(spec: ClusterSpec, machines: Any) -> list[Object]:
    from k8s_charts.kinds import node_pool

    found = []
    for name, group in spec.nodes.items():
        found += node_pool.documents(
            name,
            machines=machines,
            instance_types=group.instance_types,
            capacity="reserved" if group.capacity_reservation else "spot" if group.spot else "on-demand",
            zones=group.availability_zones or spec.network.zones,
            cpus=group.max * max(most_vcpus(kind) or 0 for kind in group.instance_types),
            disk_gib=group.volume_gib,
            labels=group.shape.all_labels,
            taints=[vars(taint) for taint in group.shape.all_taints],
            tags=spec.all_tags,
            reservation=group.capacity_reservation,
        )
    return found
