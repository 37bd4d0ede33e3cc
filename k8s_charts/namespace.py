"""The namespace that jobs share: its pod security, one service account a role, and a ceiling where one is set."""

from __future__ import annotations

from cdk8s import Chart
from cdk8s_plus_33 import k8s
from constructs import Construct

from k8s_charts import custom_object, names
from k8s_charts.spec import TrainingJob


def pod_security(level: str) -> dict[str, str]:
    """Labels by which the API server enforces a Pod Security Standard, and warns of and logs what breaks it."""
    modes = ("enforce", "audit", "warn")
    return {
        f"pod-security.kubernetes.io/{mode}{suffix}": value
        for mode in modes
        for suffix, value in (("", level), ("-version", "latest"))
    }


def takes_the_node(job: TrainingJob) -> bool:
    """Whether the job's pods use their node's address, which every level but privileged forbids."""
    return bool(job.ports.host_ports) or (job.engine == "paddlejob" and job.operator.intranet == "Host")


class NamespaceChart(Chart):
    """Namespace, ServiceAccounts, ResourceQuota and LimitRange.

    Equal for all jobs of a namespace, so applying it twice changes nothing. The namespace `default` is everybody's:
    it is used as it is, without our pod-security labels.
    """

    def __init__(self, scope: Construct, job: TrainingJob) -> None:
        super().__init__(scope, f"{job.namespace}-namespace")
        if job.namespace != "default":
            security = pod_security("privileged" if takes_the_node(job) else "restricted")
            k8s.KubeNamespace(
                self, "Namespace", metadata=k8s.ObjectMeta(name=job.namespace, labels={**names.PART_OF, **security})
            )
        for account in (names.TRAINER_ACCOUNT, names.DATA_ACCOUNT):
            k8s.KubeServiceAccount(
                self,
                account,
                metadata=k8s.ObjectMeta(name=account, namespace=job.namespace, labels=names.PART_OF),
                # Trainers never call the API server; pod identity brings its own token.
                automount_service_account_token=False,
            )
        if job.namespace_limits is not None:
            limits = job.namespace_limits.model_dump()
            for document in custom_object.written("namespace_limits.yaml", namespace=job.namespace, **limits):
                custom_object.add(self, document)
