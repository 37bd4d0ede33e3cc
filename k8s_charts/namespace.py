"""The namespace that jobs share: restricted pod security, and one service account a role."""

from __future__ import annotations

from cdk8s import Chart
from cdk8s_plus_33 import k8s
from constructs import Construct

from k8s_charts import names
from k8s_charts.spec import TrainingJob


class NamespaceChart(Chart):
    """Namespace and ServiceAccounts; equal for all jobs of a namespace, so applying it twice changes nothing.

    The namespace `default` is everybody's: it is used as it is, without our pod-security labels.
    """

    def __init__(self, scope: Construct, job: TrainingJob) -> None:
        super().__init__(scope, f"{job.namespace}-namespace")
        shared = {"app.kubernetes.io/part-of": "paddle-aws"}
        if job.namespace != "default":
            security = {
                f"pod-security.kubernetes.io/{mode}{suffix}": value
                for mode in ("enforce", "audit", "warn")
                for suffix, value in (("", "restricted"), ("-version", "latest"))
            }
            k8s.KubeNamespace(self, "Namespace", metadata=k8s.ObjectMeta(name=job.namespace, labels={**shared, **security}))
        for account in (names.TRAINER_ACCOUNT, names.DATA_ACCOUNT):
            k8s.KubeServiceAccount(
                self,
                account,
                metadata=k8s.ObjectMeta(name=account, namespace=job.namespace, labels=shared),
                # Trainers never call the API server; pod identity brings its own token.
                automount_service_account_token=False,
            )
