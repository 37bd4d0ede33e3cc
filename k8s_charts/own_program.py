"""A user's small program on its way into the pods: an immutable ConfigMap whose name carries its content's hash."""

from __future__ import annotations

from dataclasses import dataclass

from cdk8s_plus_33 import k8s
from constructs import Construct

from k8s_charts import names
from k8s_charts.spec import TrainingJob

PLACE = "/opt/paddle/own"
"""Where it is mounted: beside the image's programs, not over them."""


@dataclass(frozen=True)
class OwnProgram:
    """A ConfigMap, and where a container sees its files."""

    config_map: str
    mount_path: str


def add(scope: Construct, job: TrainingJob, role: names.Role) -> OwnProgram | None:
    """Adds the ConfigMap where the job brings a program; a running job's program cannot change under it."""
    files = dict(job.program.files)
    if not files:
        return None
    name = names.hashed(f"{job.name}-program", files)
    metadata = k8s.ObjectMeta(name=name, namespace=job.namespace, labels=names.labels(job, role))
    k8s.KubeConfigMap(scope, "Program", metadata=metadata, immutable=True, data=files)
    return OwnProgram(name, f"{PLACE}/{job.program.folder}")
