"""The Job that measures a trained model on the held-out records: the training's own pod, once, with another command.

It mounts the job's folder read-only, has no label by which Services, budgets and policies find trainers, and waits for no gang.
"""

from collections.abc import Mapping
from typing import Any

from paddle_node import contract

from k8s_charts import names
from k8s_charts.pods import job_folder

HELPER = "reader"
"""The component of pods that only look at a volume: part of no run."""
_NOT_OF_THE_CONTAINER = ("args", "ports", "startupProbe", "livenessProbe", "restartPolicy", "restartPolicyRules")
_NOT_OF_THE_POD = ("containers", "subdomain", "schedulerName", "topologySpreadConstraints", "shareProcessNamespace")


def job(training: Mapping[str, Any], name: str) -> dict[str, Any]:
    """From a training Job, as the charts wrote it or a cluster returns it."""
    spec, metadata = training["spec"], training["metadata"]
    pod = spec["template"]["spec"]
    (trainer, *_) = pod["containers"]
    container = {field: value for field, value in trainer.items() if field not in _NOT_OF_THE_CONTAINER}
    container["command"] = list(contract.EVALUATION)
    container["volumeMounts"] = [{**each, "readOnly": each["name"] == job_folder.VOLUME} for each in trainer["volumeMounts"]]
    labels = {**names.PART_OF, names.INSTANCE: metadata["labels"][names.INSTANCE], names.COMPONENT: HELPER}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": metadata["namespace"], "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            "activeDeadlineSeconds": spec["activeDeadlineSeconds"],
            "ttlSecondsAfterFinished": 3600,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    **{field: value for field, value in pod.items() if field not in _NOT_OF_THE_POD},
                    "automountServiceAccountToken": False,
                    "containers": [container],
                },
            },
        },
    }
