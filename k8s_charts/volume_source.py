"""What lies behind a job's volume: a file system, a server or a folder, as job.yaml or the deployed stacks name it."""

from __future__ import annotations

from k8s_charts.outputs import ClusterOutputs
from k8s_charts.settings import Volume


def of(volume: Volume, outputs: ClusterOutputs) -> dict[str, str]:
    """efs: file_system and access_point; nfs: server and path; host-path: path; nothing for a claim that exists."""
    if volume.kind == "efs":
        return {
            "file_system": volume.file_system_id or outputs.file_system_id,
            "access_point": volume.access_point_id or outputs.access_point_id,
        }
    if volume.kind == "nfs":
        return {"server": volume.server or outputs.file_system_dns_name, "path": volume.path or "/"}
    return {"path": str(volume.path)} if volume.kind == "host-path" else {}
