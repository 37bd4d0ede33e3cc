"""The PaddleJob operator itself, so that `engine: paddlejob` works on a cluster that has nothing yet.

One operator a job namespace, with rights in that namespace alone: operator.yaml, and the kind that it serves,
paddle_job_definition.yaml.
"""

from __future__ import annotations

from cdk8s import Chart
from constructs import Construct

from k8s_charts import custom_object, network, pod
from k8s_charts.spec import TrainingJob


class OperatorChart(Chart):
    """CustomResourceDefinition, namespace, rights, NetworkPolicy and Deployment."""

    def __init__(self, scope: Construct, job: TrainingJob) -> None:
        super().__init__(scope, "paddle-operator")
        image = job.operator.operator_image
        (definition,) = custom_object.written("paddle_job_definition.yaml")
        space, account, role, binding, policy, deployment = custom_object.written(
            "operator.yaml", namespace=job.namespace, image=image, pull_policy=pod.pull_policy(image)
        )
        policy["spec"]["egress"] = [network.RULES["names"], network.RULES["api-server"]]
        if job.gang.kind == "volcano":
            groups = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"]}
            role["rules"].append({**groups, "verbs": ["get", "list", "watch", "create", "delete"]})
            deployment["spec"]["template"]["spec"]["containers"][0]["args"].append("--scheduling=volcano")
        for document in (definition, space, account, role, binding, policy, deployment):
            custom_object.add(self, document)
