"""The Job that measures a trained model on the held-out records: the training's own pod, once, with another command.

Promises: same image, user, volume and resources; the job's folder is mounted read-only. It has no label by which Services,
budgets and policies find trainers, and waits for no gang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle_node import contract

from k8s_charts import job_folder, names

HELPER = "reader"
"""The component of pods that only look at a volume: part of no run."""
KEPT_HOURS = 1
_OF_THE_CONTAINER = (
    *("name", "image", "imagePullPolicy", "env", "envFrom", "resources", "workingDir"),
    *("securityContext", "terminationMessagePolicy"),
)
_NOT_OF_THE_POD = ("containers", "subdomain", "schedulerName", "topologySpreadConstraints", "shareProcessNamespace")


def job(training: Mapping[str, Any], name: str, config_maps: Mapping[str, Mapping[str, str]] | None = None) -> dict[str, Any]:
    """From a training Job, as the charts wrote it or a cluster returns it.

    `config_maps`: what they hold, by name, where the cluster may have them no more.
    """
    spec, metadata = training["spec"], training["metadata"]
    pod = spec["template"]["spec"]
    (trainer, *_) = pod["containers"]
    container = {field: trainer[field] for field in _OF_THE_CONTAINER if field in trainer}
    container["command"] = list(contract.EVALUATION)
    container["volumeMounts"] = [
        {**mount, "readOnly": True} if mount["name"] == job_folder.VOLUME else mount for mount in trainer["volumeMounts"]
    ]
    if config_maps is not None:
        sources = trainer.get("envFrom", ())
        referred = [config_maps[source["configMapRef"]["name"]] for source in sources if "configMapRef" in source]
        variables = {key: {"name": key, "value": value.replace("$", "$$")} for each in referred for key, value in each.items()}
        container["env"] = list((variables | {variable["name"]: variable for variable in trainer.get("env", ())}).values())
        container["envFrom"] = [source for source in sources if "configMapRef" not in source]
    of_job = metadata["labels"][names.INSTANCE]
    labels = {**names.PART_OF, names.INSTANCE: of_job, names.COMPONENT: HELPER}
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
            "ttlSecondsAfterFinished": KEPT_HOURS * 3600,
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
