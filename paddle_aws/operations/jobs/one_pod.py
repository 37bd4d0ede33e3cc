"""A Job of one pod that a command starts, waits for, reads and removes."""

import secrets
import time
from pathlib import Path

from k8s_charts.deployed import pushed_images
from paddle_aws.operations.cluster.cluster_api import ClusterApi, Object
from paddle_aws.operations.errors import Failed
from paddle_aws.operations.jobs.objects.job_objects import JOB_NAME, has_ended, pods, read_state
from paddle_aws.operations.jobs.objects.pod_state import states
from paddle_aws.operations.jobs.removal import remove
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import ClusterSpec

POLL_INTERVAL = 1.0
"""Seconds between two looks at the pod."""
NODES = "/api/v1/nodes"


def run_one_pod(cluster: ClusterApi, document: Object, what: str, failed: str) -> str:
    """Returns what the Job's pod wrote once it has succeeded; the Job is gone then. `what` waits,
    and `failed` begins the sentence of a failure. Raises Failed.
    """
    path = cluster.path(document)
    cluster.apply(document)
    try:
        return _wait(cluster, document, path, what, failed)
    finally:
        remove(cluster, path)


def _wait(cluster: ClusterApi, document: Object, path: str, what: str, failed: str) -> str:
    name, namespace = document["metadata"]["name"], document["metadata"]["namespace"]
    reported = ""
    while True:
        job = cluster.find(path)
        if job is None:
            raise Failed(f"{what} {name} was deleted before its end")
        pods_ = cluster.items(pods(namespace), f"{JOB_NAME}={name}")
        seen, refused = states(cluster, namespace, pods_, [job])
        if has_ended(job):
            break
        waits = [pod.reason for pod in seen if pod.phase == "waiting"] or refused.values()
        if (reason := next(iter(waits), "")) and reason != reported:
            say(f"{what} waits: {reason}")
            reported = reason
        time.sleep(POLL_INTERVAL)
    if (end := read_state(job)).phase == "failed" or not seen:
        why = next((pod.failure for pod in seen if pod.reason), end.reason)
        raise Failed(f"{failed}: {why}")
    return cluster.request("GET", f"{pods(namespace)}/{seen[0].name}/log").data.decode(
        errors="replace"
    )


def check_gpus(cluster: ClusterApi, spec: ClusterSpec, image_file: Path) -> None:
    """Runs a pod on one node of each group with GPUs, and says what it saw. Raises Failed if one
    fails, after all of them.
    """
    from k8s_charts import yaml_documents

    failed = []
    for name, group in spec.nodes.items():
        if not group.gpu:
            continue
        labels = [node["metadata"].get("labels", {}) for node in cluster.items(NODES)]
        kinds = {label.get("node.kubernetes.io/instance-type") for label in labels}
        if not image_file.exists() or not kinds & set(group.instance_types):
            lacks = "no node" if image_file.exists() else "no image"
            say(
                f"GPUs of {name}: not checked, there is {lacks} yet: run `paddle-aws setup` again "
                "once there is"
            )
            continue
        (document,) = yaml_documents.template(
            "gpu_check.yaml",
            name=f"gpus-{secrets.token_hex(4)}",
            namespace=spec.jobs.namespace,
            types=list(group.instance_types),
            image=next(iter(pushed_images(image_file).values())),
            gpus=group.gpus,
        )
        try:
            job = yaml_documents.labelled(document)
            said = run_one_pod(cluster, job, "the pod", f"GPUs of {name}")
            say(f"GPUs of {name}: {(said.splitlines() or ['its log is empty'])[-1]}")
        except Failed as error:
            failed.append(str(error))
    if failed:
        raise Failed("\n".join(failed))
