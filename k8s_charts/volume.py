"""The shared volume: a PersistentVolume, and the one claim that can bind it."""

from __future__ import annotations

from typing import Any

from cdk8s import Chart
from cdk8s_plus_33 import k8s
from constructs import Construct

from k8s_charts import names
from k8s_charts.outputs import ClusterOutputs
from k8s_charts.settings import TUTORIALS_MOUNT_OPTIONS, Volume
from k8s_charts.spec import TrainingJob


def _source(volume: Volume, outputs: ClusterOutputs) -> dict[str, Any]:
    """What lies behind the PersistentVolume: fields of its spec."""
    source = outputs.volume_source(volume)
    if volume.kind == "nfs":
        return {
            "nfs": k8s.NfsVolumeSource(server=source["server"], path=source["path"]),
            "mount_options": list(TUTORIALS_MOUNT_OPTIONS if volume.mount_options is None else volume.mount_options),
        }
    if volume.kind == "host-path":
        # Behind a claim, not in the pod: restricted pod security takes no hostPath volume in a pod.
        return {"host_path": k8s.HostPathVolumeSource(path=source["path"], type="Directory")}
    handle = f"{source['file_system']}::{source['access_point']}"
    return {
        "csi": k8s.CsiPersistentVolumeSource(driver="efs.csi.aws.com", volume_handle=handle),
        # TLS is the driver's default; said all the same, since the file system refuses anything else.
        "mount_options": list(("tls", "noresvport") if volume.mount_options is None else volume.mount_options),
    }


class VolumeChart(Chart):
    """PersistentVolume and claim: EFS by its CSI driver, an NFS server, or a folder of the nodes."""

    def __init__(self, scope: Construct, job: TrainingJob, outputs: ClusterOutputs) -> None:
        super().__init__(scope, f"{job.name}-volume")
        volume, claim = names.volume(job, outputs), names.claim(job, outputs)
        size = k8s.Quantity.from_string(job.volume.size)
        k8s.KubePersistentVolume(
            self,
            "Volume",
            metadata=k8s.ObjectMeta(name=volume, labels=names.labels(job)),
            spec=k8s.PersistentVolumeSpec(
                capacity={"storage": size},
                access_modes=["ReadWriteMany"],
                # Deleting the job's objects must never delete its data.
                persistent_volume_reclaim_policy="Retain",
                volume_mode="Filesystem",
                claim_ref=k8s.ObjectReference(
                    api_version="v1", kind="PersistentVolumeClaim", name=claim, namespace=job.namespace
                ),
                **_source(job.volume, outputs),
            ),
        )
        k8s.KubePersistentVolumeClaim(
            self,
            "Claim",
            metadata=k8s.ObjectMeta(name=claim, namespace=job.namespace, labels=names.labels(job)),
            spec=k8s.PersistentVolumeClaimSpec(
                access_modes=["ReadWriteMany"],
                # Empty, not absent: the cluster's default storage class must stay out of it. A volume needs no such word.
                storage_class_name="",
                volume_mode="Filesystem",
                volume_name=volume,
                resources=k8s.VolumeResourceRequirements(requests={"storage": size}),
            ),
        )
