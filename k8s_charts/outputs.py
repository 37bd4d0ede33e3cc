"""What the deployed stacks tell the charts: the file that `cdk deploy --outputs-file` writes, read once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from k8s_charts.errors import JobError
from k8s_charts.settings import Volume
from settings import file as settings_file

Credentials = Literal["pod-identity", "instance-profile"]


def read(path: Path) -> dict[str, dict[str, str]]:
    """{stack: {output: value}}. Raises JobError when the file is no such JSON."""
    if not path.exists():
        raise JobError(f"{path} does not exist: deploy with `cdk deploy --all --outputs-file {path}`")
    try:
        stacks = settings_file.document(path)
    except settings_file.SettingError as error:
        raise JobError(f"{path} is no outputs file of cdk deploy: it {str(error).removeprefix(f'{path} ')}") from None
    if not isinstance(stacks, dict) or not all(
        isinstance(outputs, dict) and all(isinstance(value, str) for value in outputs.values()) for outputs in stacks.values()
    ):
        raise JobError(f"{path} is no outputs file of cdk deploy: it has to map each stack to its outputs")
    return stacks


@dataclass(frozen=True)
class ClusterOutputs:
    """The outputs that manifests use.

    Every field is a plain string, so inside a CDK app each may be a token (`file_system.file_system_id`):
    pass it to a chart and hand that chart to a cluster; the token comes out as a reference.
    """

    file_system_id: str
    access_point_id: str
    bucket_name: str
    file_system_dns_name: str
    region: str = ""
    """Empty: unknown."""
    data_job_credentials: Credentials = "pod-identity"
    """From whom the data job's pod gets its right to read sources: EKS's agent on the node, or the node's instance profile."""
    host_ports: bool = True
    """Whether nodes reach each other at any port: not between a self-managed cluster's."""
    kubernetes_version: str = ""
    """Such as 1.35; empty: unknown, and manifests say nothing that an older cluster would refuse."""
    placeholders: bool = False
    """True where nothing was deployed: the manifests can be read and checked, not applied."""

    @property
    def restarts_in_place(self) -> bool:
        """Whether containers may say after which exit codes they are started again: Kubernetes has it on from 1.35."""
        version = re.fullmatch(r"1\.(\d+)", self.kubernetes_version)
        return version is not None and int(version[1]) >= 35

    def volume_source(self, volume: Volume) -> dict[str, str]:
        """What lies behind a job's volume, as job.yaml or the deployed stacks name it; nothing for a claim that exists."""
        if volume.kind == "efs":
            return {
                "file_system": volume.file_system_id or self.file_system_id,
                "access_point": volume.access_point_id or self.access_point_id,
            }
        if volume.kind == "nfs":
            return {"server": volume.server or self.file_system_dns_name, "path": volume.path or "/"}
        return {"path": str(volume.path)} if volume.kind == "host-path" else {}

    @classmethod
    def load(cls, path: Path) -> ClusterOutputs:
        """Reads {stack: {output: value}}; the output's key alone decides, whatever the stacks are called.

        Raises JobError when the file is no such JSON, lacks an output, or has one twice with different values.
        """
        stacks = read(path)

        def value(key: str, default: str | None = None) -> str:
            found = {outputs[key] for outputs in stacks.values() if key in outputs}
            if not found and default is not None:
                return default
            if not found:
                raise JobError(f"{path} lacks the output {key}: deploy all stacks with `cdk deploy --all --outputs-file {path}`")
            if len(found) > 1:
                raise JobError(f"{path} has {key} of {len(found)} clusters: keep the stacks of one cluster in it")
            return found.pop()

        credentials = value("DataJobCredentials", "pod-identity")
        if credentials not in get_args(Credentials):
            raise JobError(f"{path} has DataJobCredentials {credentials}: {' or '.join(get_args(Credentials))} is allowed")
        ports = value("HostPorts", "open")
        if ports not in ("open", "closed"):
            raise JobError(f"{path} has HostPorts {ports}: open or closed is allowed")
        return cls(
            file_system_id=value("FileSystemId"),
            access_point_id=value("AccessPointId"),
            bucket_name=value("BucketName"),
            file_system_dns_name=value("FileSystemDnsName"),
            region=value("Region", ""),
            data_job_credentials=cast("Credentials", credentials),
            host_ports=ports == "open",
            kubernetes_version=value("KubernetesVersion", ""),
        )

    @classmethod
    def placeholder(cls) -> ClusterOutputs:
        """Values of the right shape that belong to nobody: for reading manifests before anything is deployed."""
        return cls(
            file_system_id="fs-00000000000000000",
            access_point_id="fsap-00000000000000000",
            bucket_name="placeholder-bucket",
            file_system_dns_name="fs-00000000000000000.efs.placeholder.invalid",
            kubernetes_version="1.35",
            placeholders=True,
        )
