"""The PaddleJob operator itself, so that `engine: paddlejob` works on a cluster that has nothing yet.

One operator a job namespace, with rights in that namespace alone: operator.yaml, and the kind that it serves,
paddle_job_definition.yaml.
"""

from __future__ import annotations

from cdk8s import Chart
from cdk8s_plus_33 import k8s
from constructs import Construct

from k8s_charts import custom_object, names, network, pod
from k8s_charts.namespace import pod_security
from k8s_charts.spec import TrainingJob

NAMESPACE = "paddle-system"


class OperatorChart(Chart):
    """CustomResourceDefinition, namespace, rights, NetworkPolicy and Deployment."""

    def __init__(self, scope: Construct, job: TrainingJob) -> None:
        super().__init__(scope, "paddle-operator")
        (definition,) = custom_object.written("paddle_job_definition.yaml")
        custom_object.add(self, definition)
        k8s.KubeNamespace(
            self, "Namespace", metadata=k8s.ObjectMeta(name=NAMESPACE, labels={**names.PART_OF, **pod_security("restricted")})
        )
        image = job.operator.operator_image
        account, role, binding, deployment = custom_object.written(
            "operator.yaml", namespace=job.namespace, image=image, pull_policy=pod.pull_policy(image)
        )
        if job.gang.kind == "volcano":
            groups = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"]}
            role["rules"].append({**groups, "verbs": ["get", "list", "watch", "create", "delete"]})
            deployment["spec"]["template"]["spec"]["containers"][0]["args"].append("--scheduling=volcano")
        for document in (account, role, binding):
            custom_object.add(self, document)
        k8s.KubeNetworkPolicy(
            self,
            "NetworkPolicy",
            metadata=k8s.ObjectMeta(**account["metadata"]),
            spec=k8s.NetworkPolicySpec(
                pod_selector=k8s.LabelSelector(match_labels=account["metadata"]["labels"]),
                policy_types=["Ingress", "Egress"],
                egress=[network.to_names_service(), network.to_anywhere(*network.API_SERVER_PORTS)],
            ),
        )
        custom_object.add(self, deployment)
