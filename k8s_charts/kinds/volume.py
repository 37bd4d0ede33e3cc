"""The shared volume: a PersistentVolume, and the one claim that can bind it."""

from collections.abc import Mapping
from typing import Any

from constructs import Construct

from k8s_charts import names, yaml_documents
from k8s_charts.deployed import ClusterOutputs
from k8s_charts.job_chart import JobChart
from k8s_charts.spec import TrainingJob
from k8s_charts.spec.groups import Volume

MOUNT_OPTIONS = {
    # TLS is the driver's default; it is set explicitly because the file system refuses anything
    # else.
    "efs": ("tls", "noresvport"),
    # As in the driver's example: locks of files hold on all nodes, not on one.
    "lustre": ("flock",),
    # The tutorials' options, and `noresvport`, which EFS asks for: without it a client may hang
    # after a failover.
    "nfs": (
        "nfsvers=4.1",
        "rsize=1048576",
        "wsize=1048576",
        "hard",
        "timeo=600",
        "retrans=2",
        "noresvport",
    ),
}


MOUNT_LABEL = "paddle-aws/file-system"
"""The label of nodes that mount the file system: its value is the folder, with dots for slashes."""


def _source(volume: Volume, outputs: ClusterOutputs) -> dict[str, Any]:
    """Returns the fields of the PersistentVolume's spec that name its storage."""
    source = outputs.volume_source(volume)
    if volume.kind == "host-path":
        # Behind a claim, not in the pod: restricted pod security allows no hostPath volume in a
        # pod.
        return {
            "hostPath": {**source, "type": "Directory"},
            **_nodes(outputs.mount_of(source["path"])),
        }
    options = {
        "mountOptions": list(
            MOUNT_OPTIONS[volume.kind] if volume.mount_options is None else volume.mount_options
        )
    }
    if volume.kind == "nfs":
        return {"nfs": source, **options}
    if volume.kind == "lustre":
        driver = {"driver": "fsx.csi.aws.com", "volumeHandle": source["file_system"]}
        attributes = {"dnsname": source["server"], "mountname": source["mount_name"]}
        return {"csi": {**driver, "volumeAttributes": attributes}, **options}
    handle = f"{source['file_system']}::{source['access_point']}"
    return {"csi": {"driver": "efs.csi.aws.com", "volumeHandle": handle}, **options}


def _nodes(folder: str | None) -> dict[str, Any]:
    """Returns the field that keeps pods on nodes that mount `folder`; None: any node has it."""
    if folder is None:
        return {}
    value = folder.strip("/").replace("/", ".")
    label = {"key": MOUNT_LABEL, "operator": "In", "values": [value]}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [label]}]}}}


class VolumeChart(JobChart):
    """PersistentVolume and claim: EFS or FSx for Lustre through its CSI driver, an NFS server, or a
    folder of the nodes.

    Args:
        job: the job.
        outputs: the stacks' outputs.
        labels: labels of all objects in the chart.
    """

    def __init__(
        self,
        scope: Construct,
        job: TrainingJob,
        outputs: ClusterOutputs,
        *,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(scope, f"{job.name}-volume", job, labels=labels)
        volume, claim = yaml_documents.template(
            "volume.yaml",
            volume=names.volume(job, outputs),
            claim=names.claim(job, outputs),
            job=job.name,
            namespace=job.namespace,
            size=job.volume.size,
        )
        volume["spec"] = dict(sorted({**volume["spec"], **_source(job.volume, outputs)}.items()))
        yaml_documents.add(self, volume, claim)
