"""`paddle-aws setup`: what a cluster needs once, before its first job."""

import time
from typing import Annotated

import typer
from paddle_node.contract import PROJECT, Label

from k8s_charts.deployed import ClusterOutputs
from paddle_aws.operations import options
from paddle_aws.operations.account.setup_documents import documents
from paddle_aws.operations.cluster.cluster_api import ApiError, ClusterApi
from paddle_aws.operations.errors import BadInput, Failed, cli_errors
from paddle_aws.operations.jobs.one_pod import check_gpus
from paddle_aws.operations.screen import echo, say
from paddle_aws.stacks.cluster_spec import load_cluster

POOLS, CLASSES = "/apis/karpenter.sh/v1/nodepools", "/apis/eks.amazonaws.com/v1/nodeclasses"
OURS = f"{Label.PART_OF}={PROJECT}"
IMAGES = f"{Label.NAME}=images"
MACHINE_DEADLINE = 900.0
"""Seconds within which a removed pool's machines have to be gone."""


@cli_errors("interrupted: the same command applies the rest")
def setup(
    config: options.Config = options.CLUSTER,
    outputs: options.Outputs = options.OUTPUTS,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="The cluster checks everything and changes nothing.")
    ] = False,
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="Print the documents, without a cluster.")
    ] = False,
    remove: Annotated[
        bool,
        typer.Option("--remove", help="End all nodes of `compute: auto`, before `cdk destroy`."),
    ] = False,
    context: options.Context = None,
    image_file: options.ImageFile = options.IMAGE_FILE,
) -> None:
    """Prepare a deployed cluster: deployers' rights, device plugins, the images that nodes keep,
    node pools of `compute: auto`, Kueue's queue.

    It installs nothing on this machine: `make setup`, in a clone, does that. An administrator runs
    it after a deploy, and again after a change of cluster.yaml's `nodes` or `jobs`. It changes only
    what differs. At the end, a pod on a node of each group with `gpu` says whether its GPUs work:
    nvidia-smi, and an all-reduce by the pushed image's Paddle.

    Example: paddle-aws setup

    Example: paddle-aws setup --yaml | kubectl diff -f -
    """
    if dry_run + as_yaml + remove > 1:
        raise BadInput("--dry-run, --yaml and --remove are given together: one of them is allowed")
    spec = load_cluster(config)
    if remove:
        _remove(ClusterApi(context, say))
        return
    manifests = documents(spec, ClusterOutputs.load(outputs))
    if as_yaml:
        from k8s_charts import yaml_documents

        echo(yaml_documents.dump(manifests), nl=False)
        return
    cluster = ClusterApi(context, say)
    for document in manifests:
        # Checks every kind before anything is changed.
        cluster.path(document)
    for document in manifests:
        try:
            cluster.apply(document, dry_run=dry_run)
        except ApiError as error:
            # In a dry run the namespace does not exist yet.
            if not (dry_run and error.status == 404):
                raise
        done = "would apply" if dry_run else "applied"
        say(f"{done} {document['kind']} {document['metadata']['name']}")
    daemon_sets = f"/apis/apps/v1/namespaces/{spec.jobs.namespace}/daemonsets"
    if cluster.items(daemon_sets, labels=IMAGES) and not spec.jobs.images:
        say(
            "jobs.images is no longer in cluster.yaml: `kubectl delete daemonset images "
            f"--namespace {spec.jobs.namespace}` lets the nodes remove them"
        )
    for pool in cluster.items(POOLS, labels=OURS):
        if (name := pool["metadata"]["name"]) not in spec.nodes:
            say(
                f"node pool {name} is no longer in cluster.yaml: `kubectl delete "
                f"nodepool,nodeclass {name}` ends its nodes"
            )
    if not dry_run:
        check_gpus(cluster, spec, image_file)


def _remove(cluster: ClusterApi) -> None:
    for path in (POOLS, CLASSES):
        deadline = time.monotonic() + MACHINE_DEADLINE
        while left := [pool["metadata"]["name"] for pool in cluster.items(path, labels=OURS)]:
            if time.monotonic() > deadline:
                raise Failed(
                    f"{', '.join(left)} of {path} are still there: a job's pods keep their "
                    "nodes, cancel it and run this again"
                )
            for name in left:
                cluster.delete(f"{path}/{name}")
            time.sleep(1)
    say("no node pool of this cluster is left: `cdk destroy` can remove the rest")
