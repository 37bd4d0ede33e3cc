"""A pod that passes Pod Security "restricted" and can still train: templates/pod.yaml, with what a job fills in."""

from collections.abc import Mapping
from typing import Any

from constructs import Construct
from paddle_node import contract
from paddle_node.contract import Variable

from k8s_charts import names, yaml_documents
from k8s_charts.deployed import ClusterOutputs
from k8s_charts.pods import job_folder, scheduling
from k8s_charts.spec import TrainingJob
from k8s_charts.spec.groups import TrainerResources
from settings.model import Settings

Object = dict[str, Any]
INLINE_PROGRAMS = "/opt/paddle/own"
"""Where a program from a ConfigMap is mounted: beside the image's programs, not over them."""


class FieldPath(str):
    """A variable's value that the pod learns of itself (downward API)."""


LEAST_KEPT = 60
"""Seconds that a finished Job stays: those who follow it look every few."""


def literal(value: str) -> str:
    """A value that the kubelet's expansion gives back unchanged.

    It reads `$(NAME)` as a reference and `$$` as one `$`; a lone `$` before a letter beyond ASCII it damages.
    Doubling every one is exact.
    """
    return value.replace("$", "$$")


def told(settings: Settings) -> dict[Any, object]:
    """The settings of a group that pods get unchanged: each by the variable that its field is marked with."""
    fields = type(settings).model_fields.items()
    return {mark: getattr(settings, name) for name, field in fields for mark in field.metadata if isinstance(mark, Variable)}


def text(value: object) -> str:
    """A variable's value."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def environment(values: Mapping[Any, object]) -> list[Object]:
    """A container's variables in the order given, without those that are None."""
    return [
        {"name": str(name), "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": str(value)}}}
        if isinstance(value, FieldPath)
        else {"name": str(name), "value": text(value)}
        for name, value in values.items()
        if value is not None
    ]


def identity(job: TrainingJob) -> dict[Variable, str]:
    """The variables by which a pod of a Job knows its run."""
    return {
        Variable.JOB_NAME: job.name,
        # Set by the Job controller: the object's name has a hash of this very template.
        Variable.RUN_ID: FieldPath("metadata.labels['batch.kubernetes.io/controller-uid']"),
        Variable.JOB_OBJECT: FieldPath("metadata.labels['batch.kubernetes.io/job-name']"),
        Variable.POD_NAME: FieldPath("metadata.name"),
        Variable.NODE: FieldPath("spec.nodeName"),
        Variable.POD_IP: FieldPath("status.podIP"),
        Variable.JOB_NAMESPACE: job.namespace,
    }


def environment_from(job: TrainingJob, settings: str | None = None) -> list[Object]:
    """Where a trainer's other variables come from. The later one wins: a Secret changes no setting of the job."""
    named = {"secretRef": job.environment_from, "configMapRef": settings}
    return [{kind: {"name": name}} for kind, name in named.items() if name is not None]


def pull_policy(image: str) -> str:
    """Kubernetes' own default: a digest or a version is pulled once, so that a preloaded image is used; `latest` each time."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "IfNotPresent" if digest or tag not in ("", "latest") else "Always"


def config_map(scope: Construct, job: TrainingJob, role: names.Role, ending: str, data: Mapping[str, str]) -> str | None:
    """Adds an immutable ConfigMap and returns its name, which has a hash of its data; None where there is no data.

    So neither the settings nor the inline program of a running job can change.
    """
    if not data:
        return None
    name = names.hashed(f"{job.name}-{ending}", data)
    metadata = {"name": name, "namespace": job.namespace, "labels": names.labels(job, role)}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data), "immutable": True}
    yaml_documents.add(scope, yaml_documents.plain(document))
    return name


def template(
    job: TrainingJob,
    role: names.Role,
    *,
    outputs: ClusterOutputs,
    image: str,
    container: Object,
    spec: Object,
    program: str | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """One role's pods: `container` and `spec` are Kubernetes fields that go over those of templates/pod.yaml.

    `program` is the ConfigMap of an inline program.
    """
    resources = job.data_resources if role == "data" else job.resources
    gpus = 0 if role == "data" or (role == "ps" and not job.gpus.parameter_servers) else job.gpus.count
    (pod,) = yaml_documents.template(
        "pod.yaml",
        home=contract.HOME,
        scratch=resources.scratch,
        uid=contract.UID,
        gid=contract.GID,
        grace=job.limits.grace_period_seconds,
    )
    efa, auto = (job.resources.efa if role == "trainer" else 0), bool(outputs.auto_mode)
    kept = {"karpenter.sh/do-not-disrupt": "true"} if auto else {}
    pod["metadata"] = {"labels": names.labels(job, role), "annotations": {**(annotations or {}), **kept} or None}
    found = pod["spec"]
    (first,) = found["containers"]
    first |= {"image": image, "imagePullPolicy": pull_policy(image), "resources": scheduling.requirements(resources, gpus, efa)}
    first |= container
    found |= {**scheduling.placement(job, role, gpus=gpus > 0, auto=auto), **spec}

    def mount(name: str, path: str, source: Object, **fields: object) -> None:
        found["volumes"].append({"name": name, **source})
        first["volumeMounts"].append({"name": name, "mountPath": path, **fields})

    if isinstance(resources, TrainerResources):
        memory = {"medium": "Memory", "sizeLimit": resources.shared_memory}
        mount("shared-memory", contract.SHARED_MEMORY, {"emptyDir": memory})
    if program is not None:
        place = f"{INLINE_PROGRAMS}/{job.program.folder}"
        mount("program", place, {"configMap": {"name": program}}, readOnly=True)
    if job.volume.kind != "none":
        found["volumes"].insert(0, {"name": job_folder.VOLUME, "persistentVolumeClaim": {"claimName": names.claim(job, outputs)}})
        first["volumeMounts"] = [*job_folder.mounts(job, role), *first["volumeMounts"]]
        found["initContainers"] = job_folder.maker(job, role, first, scheduling.requirements(resources)) or None
    filled: Object = yaml_documents.plain(pod)
    return filled


def job_document(job: TrainingJob, template: Object, pods: int, *, indexed: bool, suspend: bool | None = None) -> Object:
    """A Job without its metadata: `pods` side by side, which end at the job's limits.

    Where pods have indexes each index counts its own failures, and one that has used them up fails the Job.
    """
    retries = job.limits.retries
    spec = {
        "template": template,
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed" if indexed else "NonIndexed",
        "podFailurePolicy": {"rules": _failure_rules(template)},
        # A replacement starts when its predecessor is gone: two pods of one index would do the same work twice.
        "podReplacementPolicy": "Failed",
        "activeDeadlineSeconds": int(job.limits.hours * 3600),
        "ttlSecondsAfterFinished": max(LEAST_KEPT, int(job.limits.keep_finished_hours * 3600)),
        "suspend": suspend,
        **({"backoffLimitPerIndex": retries, "maxFailedIndexes": 0} if indexed else {"backoffLimit": retries}),
    }
    document: Object = yaml_documents.plain({"apiVersion": "batch/v1", "kind": "Job", "spec": spec})
    return document


def _failure_rules(template: Object) -> list[Object]:
    """Faults that no retry can heal fail the Job at once; a drained or reclaimed node costs no retry."""
    codes = {"operator": "In", "values": sorted(int(code) for code in contract.FAIL_JOB)}
    spec = template["spec"]
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    disrupted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return [*({"action": "FailJob", "onExitCodes": {"containerName": one["name"], **codes}} for one in containers), disrupted]


def restart_rules(outputs: ClusterOutputs) -> Object:
    """Fields of a container that the kubelet starts again in its pod after some exit codes, which the Job does not count."""
    if not outputs.restarts_in_place:
        return {}
    codes = {"operator": "In", "values": list(contract.RESTART_IN_PLACE)}
    return {"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": codes}]}


def disruption_budget(
    scope: Construct, job: TrainingJob, min_available: int, selector: Mapping[str, Any], labels: Mapping[str, str]
) -> None:
    """How many of the pods a drain has to leave alone."""
    (budget,) = yaml_documents.template(
        "disruption_budget.yaml", job=job.name, namespace=job.namespace, min_available=min_available
    )
    budget["metadata"]["labels"] = labels
    budget["spec"]["selector"] = selector
    yaml_documents.add(scope, budget)
