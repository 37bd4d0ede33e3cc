"""`paddle-aws setup`: what a cluster needs once, before its first job."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer
import yaml

from k8s_charts.deployed import ClusterOutputs
from paddle_aws.operations.cluster.cluster import ApiError, Cluster, Object
from paddle_aws.operations.errors import BadInput, Failed, cli_errors
from paddle_aws.operations.options import CLUSTER, OUTPUTS, Config, Context, Outputs
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import ClusterSpec, load_cluster, most_vcpus

POOLS, CLASSES = "/apis/karpenter.sh/v1/nodepools", "/apis/eks.amazonaws.com/v1/nodeclasses"
OURS = "app.kubernetes.io/part-of=paddle-aws"
ENDED = 900.0
"""Seconds within which a removed pool's machines have to be gone."""


def setup(
    config: Config = CLUSTER,
    outputs: Outputs = OUTPUTS,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="The cluster checks everything and changes nothing.")
    ] = False,
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="Print the documents; no cluster is asked.")
    ] = False,
    remove: Annotated[
        bool,
        typer.Option("--remove", help="End all nodes of `compute: auto`; before `cdk destroy`."),
    ] = False,
    context: Context = None,
) -> None:
    """Apply what the cluster needs once: deployers' rights, device plugins, node pools of `compute:
    auto`, Kueue's queue.

    An administrator runs it after a deploy, and again after a change of cluster.yaml's `nodes`.
    What is as it should be stays.

    Example: paddle-aws setup

    Example: paddle-aws setup --yaml | kubectl diff -f -
    """
    with cli_errors("interrupted: the same command applies the rest"):
        if dry_run + as_yaml + remove > 1:
            raise BadInput(
                "--dry-run, --yaml and --remove are given together: one of them is allowed"
            )
        spec = load_cluster(config)
        if remove:
            _remove(Cluster(context, say))
            return
        wanted = documents(spec, ClusterOutputs.load(outputs))
        if as_yaml:
            from k8s_charts import yaml_documents

            typer.echo(yaml_documents.dump(wanted), nl=False)
            return
        cluster = Cluster(context, say)
        for document in wanted:
            # Checks every kind before anything is changed.
            cluster.path(document)
        for document in wanted:
            try:
                cluster.apply(document, dry_run=dry_run)
            except ApiError as error:
                # In a dry run the namespace does not exist yet.
                if not (dry_run and error.status == 404):
                    raise
            say(
                f"{'would apply' if dry_run else 'applied'} {document['kind']} "
                f"{document['metadata']['name']}"
            )
        for pool in cluster.items(POOLS, labels=OURS):
            if (name := pool["metadata"]["name"]) not in spec.nodes:
                say(
                    f"node pool {name} is no longer in cluster.yaml: `kubectl delete "
                    f"nodepool,nodeclass {name}` ends its nodes"
                )


def _remove(cluster: Cluster) -> None:
    for path in (POOLS, CLASSES):
        deadline = time.monotonic() + ENDED
        while left := [one["metadata"]["name"] for one in cluster.items(path, labels=OURS)]:
            if time.monotonic() > deadline:
                raise Failed(
                    f"{', '.join(left)} of {path} are still there: a job's pods keep their "
                    "nodes, cancel it and run this again"
                )
            for name in left:
                cluster.delete(f"{path}/{name}")
            time.sleep(1)
    say("no node pool of this cluster is left: `cdk destroy` can take the rest")


def documents(spec: ClusterSpec, outputs: ClusterOutputs) -> list[Object]:
    """Returns the documents in the order in which they are applied.

    Raises BadInput if compute is auto and the nodes stack's output AutoMode is missing.
    """
    # Imported here: cdk8s starts Node, and `paddle-aws --help` need not wait for that.
    from k8s_charts import yaml_documents
    from k8s_charts.kinds import node_pool

    groups, namespace = spec.nodes.values(), spec.jobs.namespace
    found = yaml_documents.template("deployers.yaml", namespace=namespace, **_volume(outputs))
    if namespace == "default":
        # This namespace is everybody's: it keeps its own pod security.
        found = [document for document in found if document["kind"] != "Namespace"]
    if any(group.gpu for group in groups) and not spec.auto:
        found += yaml_documents.template("nvidia_device_plugin.yaml")
    if any(group.gpu for group in groups):
        found += yaml_documents.template("dcgm_exporter.yaml")
    if any(group.efa for group in groups):
        found += yaml_documents.template("efa_device_plugin.yaml", registry=_registry(spec.region))
    if spec.auto:
        if not outputs.auto_mode:
            raise BadInput(
                "compute is auto, and no output AutoMode is deployed: run `cdk deploy --all "
                "--outputs-file outputs.json`"
            )
        found += yaml_documents.template("auto_mode.yaml")
        for name, group in spec.nodes.items():
            found += node_pool.documents(
                name,
                machines=json.loads(outputs.auto_mode),
                instance_types=group.instance_types,
                capacity="reserved"
                if group.capacity_reservation
                else "spot"
                if group.spot
                else "on-demand",
                zones=group.availability_zones or spec.network.zones,
                cpus=group.max * max(most_vcpus(kind) or 0 for kind in group.instance_types),
                disk_gib=group.volume_gib,
                labels=group.shape.all_labels,
                taints=[vars(taint) for taint in group.shape.all_taints],
                tags=spec.all_tags,
                reservation=group.capacity_reservation,
                interfaces=group.shape.split_interfaces if group.efa else (),
            )
    if spec.jobs.queue:
        cores = sum(
            group.max * (min(most_vcpus(kind) or 1 for kind in group.instance_types) - 1)
            for group in groups
        )
        gpus = sum(group.max * group.gpus for group in groups)
        found += yaml_documents.template(
            "queue.yaml", queue=spec.jobs.queue, namespace=namespace, cpus=cores, gpus=gpus
        )
    return found


def _volume(outputs: ClusterOutputs) -> dict[str, str]:
    """Returns what the deployers' volumes must name: the cluster's file system alone."""
    if outputs.file_system_mount_name:
        attributes = {
            "dnsname": outputs.file_system_dns_name,
            "mountname": outputs.file_system_mount_name,
        }
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
    """Returns the registry of EKS's images in a region: the region's own, because others may be out
    of reach of a network without a way to the internet, and are in another partition's case.
    """
    # Not safe_load's default: an account is text, whatever its digits look like.
    text = Path(__file__).with_name("eks_registries.yaml").read_text(encoding="utf-8")
    known = yaml.load(text, Loader=yaml.BaseLoader)
    account = known["accounts"].get(region, known["others"])
    domain = {"cn": "amazonaws.com.cn", "eusc": "amazonaws.eu"}.get(
        region.partition("-")[0], "amazonaws.com"
    )
    return f"{account}.dkr.ecr.{region}.{domain}"
