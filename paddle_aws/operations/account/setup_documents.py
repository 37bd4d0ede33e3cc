"""What `paddle-aws setup` applies to a cluster once, before its first job."""

import json
from pathlib import Path

import yaml

from k8s_charts.deployed import ClusterOutputs
from paddle_aws.operations.cluster.cluster_api import Object
from paddle_aws.operations.errors import BadInput
from paddle_aws.stacks.cluster_spec import ClusterSpec, most_vcpus


def documents(spec: ClusterSpec, outputs: ClusterOutputs) -> list[Object]:
    """Returns the documents in the order in which they are applied.

    Raises BadInput if compute is auto and the nodes stack's output AutoMode is missing.
    """
    # Imported here: cdk8s starts Node, and `paddle-aws --help` need not wait for that.
    from k8s_charts import yaml_documents

    groups, namespace = spec.nodes.values(), spec.jobs.namespace
    manifests = yaml_documents.template("deployers.yaml", namespace=namespace, **_volume(outputs))
    if namespace == "default":
        # The namespace `default` is shared with others, so it keeps its pod security.
        manifests = [document for document in manifests if document["kind"] != "Namespace"]
    if any(group.gpu for group in groups) and not spec.auto:
        manifests += yaml_documents.template("nvidia_device_plugin.yaml")
    if any(group.gpu for group in groups) and not spec.node_metrics:
        # CloudWatch's add-on brings its own, and before Hopper two cannot profile one GPU
        # (NVIDIA/dcgm-exporter#7).
        manifests += yaml_documents.template("dcgm_exporter.yaml")
    if any(group.efa for group in groups):
        registry = _registry(spec.region)
        manifests += yaml_documents.template("efa_device_plugin.yaml", registry=registry)
    if spec.auto:
        if not outputs.auto_mode:
            raise BadInput(
                "compute is auto, and no output AutoMode is deployed: run `cdk deploy --all "
                "--outputs-file outputs.json`"
            )
        manifests += yaml_documents.template("auto_mode.yaml")
        for name in spec.nodes:
            manifests += _node_pool(name, spec, json.loads(outputs.auto_mode))
    if spec.jobs.images:
        (images,) = yaml_documents.template("images.yaml", namespace=namespace)
        pod = images["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        pod["containers"] = [
            {**container, "name": f"image-{number}", "image": image}
            for number, image in enumerate(spec.jobs.images)
        ]
        manifests.append(images)
    if spec.jobs.queue:
        cores = sum(
            group.max * (min(most_vcpus(kind) or 1 for kind in group.instance_types) - 1)
            for group in groups
        )
        gpus = sum(group.max * group.gpus for group in groups)
        manifests += yaml_documents.template(
            "queue.yaml", queue=spec.jobs.queue, namespace=namespace, cpus=cores, gpus=gpus
        )
    return [yaml_documents.labelled(document) for document in manifests]


def _node_pool(name: str, spec: ClusterSpec, machines: Object) -> list[Object]:
    """Returns what makes a group's nodes with EKS Auto Mode; `machines`: the output AutoMode."""
    from k8s_charts.kinds import node_pool

    group = spec.nodes[name]
    capacity = "spot" if group.spot else "on-demand"
    return node_pool.documents(
        name,
        machines=machines,
        instance_types=group.instance_types,
        capacity="reserved" if group.capacity_reservation else capacity,
        zones=group.availability_zones or spec.network.zones,
        cpus=group.max * max(most_vcpus(kind) or 0 for kind in group.instance_types),
        disk_gib=group.volume_gib,
        labels=group.shape.all_labels,
        taints=[vars(taint) for taint in group.shape.all_taints],
        tags=spec.all_tags,
        reservation=group.capacity_reservation,
        interfaces=group.shape.split_interfaces if group.efa else (),
    )


def _volume(outputs: ClusterOutputs) -> dict[str, str]:
    """Returns the fields that deployers' volumes must have: those of the cluster's file system."""
    if outputs.file_system_mount_name:
        attributes = {"dnsname": outputs.file_system_dns_name}
        attributes["mountname"] = outputs.file_system_mount_name
        return {
            "driver": "fsx.csi.aws.com",
            "handle": outputs.file_system_id,
            "attributes": f"object.spec.csi.volumeAttributes == {attributes}",
        }
    return {
        "driver": "efs.csi.aws.com",
        "handle": f"{outputs.file_system_id}::{outputs.access_point_id}",
        "attributes": "!has(object.spec.csi.volumeAttributes)",
    }


def _registry(region: str) -> str:
    """Returns the registry of EKS's images in a region. It is the region's own registry: a network
    without internet access may not reach others, and no network reaches another partition's.
    """
    # Not safe_load's default: an account is text, whatever its digits look like.
    text = Path(__file__).with_name("eks_registries.yaml").read_text(encoding="utf-8")
    registries = yaml.load(text, Loader=yaml.BaseLoader)
    account = registries["accounts"].get(region, registries["others"])
    domains = {"cn": "amazonaws.com.cn", "eusc": "amazonaws.eu"}
    domain = domains.get(region.partition("-")[0], "amazonaws.com")
    return f"{account}.dkr.ecr.{region}.{domain}"
