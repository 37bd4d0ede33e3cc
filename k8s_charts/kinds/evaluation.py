"""The Job that measures a trained model on the held-out records: a single pod like the training's,
with another command.

It mounts the job's folder read-only, has no label by which Services, budgets and policies find
trainers, and waits for no gang.
"""

from collections.abc import Mapping
from typing import Any

from paddle_node import contract

from k8s_charts import names, yaml_documents
from k8s_charts.pods import job_folder

_NOT_OF_THE_CONTAINER = (
    "args",
    "ports",
    "startupProbe",
    "livenessProbe",
    "restartPolicy",
    "restartPolicyRules",
)
_NOT_OF_THE_POD = (
    "containers",
    "subdomain",
    "schedulerName",
    "topologySpreadConstraints",
    "shareProcessNamespace",
)


def evaluation_job(training: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns the Job for a training Job, as the charts wrote that or a cluster returns it."""
    spec, metadata = training["spec"], training["metadata"]
    pod = spec["template"]["spec"]
    (trainer, *_) = pod["containers"]
    container = {
        field: value for field, value in trainer.items() if field not in _NOT_OF_THE_CONTAINER
    }
    container["command"] = list(contract.EVALUATION)
    container["volumeMounts"] = [
        {**mount, "readOnly": mount["name"] == job_folder.VOLUME}
        for mount in trainer["volumeMounts"]
    ]
    (document,) = yaml_documents.template(
        "evaluation.yaml",
        name=name,
        namespace=metadata["namespace"],
        job=metadata["labels"][names.INSTANCE],
        seconds=spec["activeDeadlineSeconds"],
    )
    document["spec"]["template"]["spec"] = {
        **{field: value for field, value in pod.items() if field not in _NOT_OF_THE_POD},
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    return yaml_documents.labelled(document)
