"""Environment variables and arguments as Kubernetes has to be told them, so that the container gets exactly the value meant."""

from __future__ import annotations

from collections.abc import Iterable

from cdk8s_plus_33 import k8s
from paddle_node.contract import Variable

from k8s_charts.spec import TrainingJob


def literal(value: str) -> str:
    """A value that the kubelet's expansion gives back unchanged.

    It reads `$(NAME)` as a reference and `$$` as one `$`; a lone `$` before a letter beyond ASCII it damages.
    Doubling every one is exact.
    """
    return value.replace("$", "$$")


def plain(name: Variable | str, value: object) -> k8s.EnvVar:
    """A variable whose value is ours: it is written as it is."""
    return k8s.EnvVar(name=str(name), value=str(value))


def users(environment: Iterable[tuple[str, str]]) -> list[k8s.EnvVar]:
    """A user's variables: each value reaches the container unchanged."""
    return [plain(name, literal(value)) for name, value in environment]


def field(name: Variable, path: str) -> k8s.EnvVar:
    """A value that the pod learns of itself (downward API)."""
    return k8s.EnvVar(
        name=str(name), value_from=k8s.EnvVarSource(field_ref=k8s.ObjectFieldSelector(field_path=path, api_version="v1"))
    )


def archive(job: TrainingJob) -> list[k8s.EnvVar]:
    """Which archive the pod unpacks, where the program comes in one."""
    return [] if job.program.archive is None else [plain(Variable.PROGRAM_ARCHIVE, job.program.archive.digest)]


def identity(*, job_name: str, namespace: str) -> list[k8s.EnvVar]:
    """The run identity: job name, run id, Job object, pod.

    Run id and Job object come from labels that the Job controller sets: the object's name carries a hash of this very template.
    """
    return [
        plain(Variable.JOB_NAME, job_name),
        field(Variable.RUN_ID, "metadata.labels['batch.kubernetes.io/controller-uid']"),
        field(Variable.JOB_OBJECT, "metadata.labels['batch.kubernetes.io/job-name']"),
        field(Variable.POD_NAME, "metadata.name"),
        field(Variable.NODE, "spec.nodeName"),
        field(Variable.POD_IP, "status.podIP"),
        plain(Variable.JOB_NAMESPACE, namespace),
    ]
