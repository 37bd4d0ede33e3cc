"""The namespace that jobs share: its pod security, one service account per role, and a ceiling if
one is set.
"""

from collections.abc import Mapping

from constructs import Construct

from k8s_charts import names, yaml_documents
from k8s_charts.job_chart import JobChart
from k8s_charts.spec import TrainingJob


class NamespaceChart(JobChart):
    """Namespace, ServiceAccounts, ResourceQuota and LimitRange.

    Jobs with equal `namespace_limits` share them, so applying them again changes nothing. The
    namespace `default` belongs to everybody: it is used as it is, without our pod-security labels.

    Args:
        job: the job.
        labels: labels of all objects in the chart.
    """

    def __init__(
        self, scope: Construct, job: TrainingJob, *, labels: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(scope, f"{job.namespace}-namespace", job, labels=labels)
        documents = yaml_documents.template(
            "namespace.yaml",
            namespace=job.namespace,
            trainer=names.TRAINER_ACCOUNT,
            data=names.DATA_ACCOUNT,
            level=job.pod_security_level,
        )
        if job.namespace == "default":
            documents.pop(0)
        if job.namespace_limits is not None:
            limits = job.namespace_limits.model_dump()
            documents += yaml_documents.template(
                "namespace_limits.yaml", namespace=job.namespace, **limits
            )
        yaml_documents.add(self, *documents)
