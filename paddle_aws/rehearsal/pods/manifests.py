"""The written manifests as typed objects, the only form in which the rest of the rehearsal sees
them.

A rehearsal honours every field that a class here reads; fields.yaml lists the others.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from paddle_aws.operations.errors import BadInput
from paddle_aws.rehearsal.pods import fields

_QUEUE = "kueue.x-k8s.io/queue-name"
"""The label of a Job that Kueue admits; here such a Job is admitted at once."""


class _Part(BaseModel):
    """A part of a document, with the defaults of Kubernetes."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)


T = TypeVar("T", bound=_Part)


def _field(*path: str, default: Any = ..., below: str = "") -> Any:
    """Declares a field that the document has at `path`, else Kubernetes' default. `below`: the part
    of it that a validator of its own reads, such as `[].name`.
    """
    return Field(default, validation_alias=AliasPath(*path), json_schema_extra={"below": below})


class EnvironmentEntry(_Part):
    """One `env` item: a value, or a downward-API field."""

    name: str
    value: str | None = None
    field_path: str | None = _field("valueFrom", "fieldRef", "fieldPath", default=None)


def _config_maps(items: Any) -> Any:
    """Names of the ConfigMaps in `envFrom`; a Secret has no effect here."""
    return [item["configMapRef"]["name"] for item in items if "configMapRef" in item]


class Mount(_Part):
    """One `volumeMounts` item."""

    volume: str = _field("name")
    path: str = _field("mountPath")
    sub_path: str = _field("subPath", default="")


class Probe(_Part):
    """A probe that runs a command; times in seconds."""

    command: tuple[str, ...] = _field("exec", "command")
    period: float = _field("periodSeconds", default=10)
    timeout: float = _field("timeoutSeconds", default=1)
    failures: int = _field("failureThreshold", default=3)


def _restart_codes(rules: Any) -> Any:
    """The exit codes of `restartPolicyRules`."""
    exits = [rule["exitCodes"] for rule in rules]
    if others := [row["operator"] for row in exits if row["operator"] != "In"]:
        raise ValueError(f"the operator {others[0]} is not read here, In is")
    return [code for row in exits for code in row["values"]]


class Container(_Part):
    """One container of a pod, init containers included."""

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = _field("workingDir", default="")
    environment: tuple[EnvironmentEntry, ...] = _field("env", default=())
    config_maps: Annotated[tuple[str, ...], BeforeValidator(_config_maps)] = _field(
        "envFrom", default=(), below="[].configMapRef.name"
    )
    mounts: tuple[Mount, ...] = _field("volumeMounts", default=())
    startup: Probe | None = _field("startupProbe", default=None)
    liveness: Probe | None = _field("livenessProbe", default=None)
    memory: str | None = _field("resources", "limits", "memory", default=None)
    user: int | None = _field("securityContext", "runAsUser", default=None)
    group: int | None = _field("securityContext", "runAsGroup", default=None)
    restart_policy: Literal["Never"] = _field("restartPolicy", default="Never")
    restart_codes: Annotated[frozenset[int], BeforeValidator(_restart_codes)] = _field(
        "restartPolicyRules", default=frozenset(), below="[].*"
    )
    """Exit codes after which the container restarts in its pod."""


class Volume(_Part):
    """A pod's volume: a claim, a ConfigMap, or otherwise the pod's own folder."""

    name: str
    claim: str | None = _field("persistentVolumeClaim", "claimName", default=None)
    config_map: str | None = _field("configMap", "name", default=None)
    size_limit: str | None = _field("emptyDir", "sizeLimit", default=None)
    medium: str = _field("emptyDir", "medium", default="")


def _index_by_name(items: Any) -> Any:
    return {item["name"]: item for item in items} if isinstance(items, list) else items


class PodTemplate(_Part):
    """The template from which a Job creates its pods; times in seconds."""

    labels: dict[str, str] = _field("metadata", "labels", default={})
    annotations: dict[str, str] = _field("metadata", "annotations", default={})
    init_containers: tuple[Container, ...] = _field("spec", "initContainers", default=())
    containers: tuple[Container, ...] = _field("spec", "containers")
    volumes: Annotated[dict[str, Volume], BeforeValidator(_index_by_name)] = _field(
        "spec", "volumes", default={}
    )
    restart_policy: Literal["Never"] = _field("spec", "restartPolicy")
    user: int | None = _field("spec", "securityContext", "runAsUser", default=None)
    group: int | None = _field("spec", "securityContext", "runAsGroup", default=None)
    grace: float = _field("spec", "terminationGracePeriodSeconds", default=30)
    deadline: float | None = _field("spec", "activeDeadlineSeconds", default=None)
    subdomain: str = _field("spec", "subdomain", default="")
    service_account: str = _field("spec", "serviceAccountName", default="default")
    token: bool = _field("spec", "automountServiceAccountToken", default=False)

    def change_first(self, **changes: Any) -> Self:
        """Returns the template with changes to its first container, the program's."""
        first, *others = self.containers
        containers = (first.model_copy(update=changes), *others)
        return self.model_copy(update={"containers": containers})


class FailureRule(_Part):
    """One rule of podFailurePolicy."""

    action: Literal["FailJob", "Ignore"]
    container: str | None = _field("onExitCodes", "containerName", default=None)
    operator: Literal["In"] = _field("onExitCodes", "operator", default="In")
    codes: frozenset[int] = _field("onExitCodes", "values", default=frozenset())
    """Empty if the rule looks at conditions, which no pod here has."""

    def matches(self, codes: Mapping[str, int]) -> bool:
        """Whether a failed pod's exit codes (by container) match this rule; 0 never does, as in
        Kubernetes.
        """
        chosen = [code for name, code in codes.items() if self.container in (None, name)]
        return any(code != 0 and code in self.codes for code in chosen)


class Job(_Part):
    """A Job."""

    name: str = _field("metadata", "name")
    namespace: str = _field("metadata", "namespace", default="default")
    labels: dict[str, str] = _field("metadata", "labels", default={})
    suspended: bool = _field("spec", "suspend", default=False)
    template: PodTemplate = _field("spec", "template")
    parallelism: int = _field("spec", "parallelism", default=1)
    completions: int = _field("spec", "completions", default=1)
    mode: Literal["Indexed", "NonIndexed"] = _field("spec", "completionMode", default="NonIndexed")
    back_off_limit: int | None = _field("spec", "backoffLimit", default=None)
    back_off_limit_per_index: int | None = _field("spec", "backoffLimitPerIndex", default=None)
    max_failed_indexes: Literal[0] = _field("spec", "maxFailedIndexes", default=0)
    failure_rules: tuple[FailureRule, ...] = _field("spec", "podFailurePolicy", "rules", default=())
    deadline: float | None = _field("spec", "activeDeadlineSeconds", default=None)

    @property
    def indexed(self) -> bool:
        return self.mode == "Indexed"

    @property
    def retries(self) -> int:
        """Failures that the Job tolerates across all indexes."""
        default = 6 if self.back_off_limit_per_index is None else 2**31 - 1
        return default if self.back_off_limit is None else self.back_off_limit


class Replicas(_Part):
    """One role of a PaddleJob."""

    count: int = _field("replicas")
    template: PodTemplate


class PaddleJob(_Part):
    """A PaddleJob with its operator's defaults filled in."""

    name: str = _field("metadata", "name")
    namespace: str = _field("metadata", "namespace", default="default")
    ps: Replicas | None = _field("spec", "ps", default=None)
    worker: Replicas = _field("spec", "worker")
    intranet: Literal["PodIP", "Service"] = _field("spec", "intranet", default="PodIP")
    """Whether pods get each other's addresses or names."""
    gloo: int = _field("spec", "withGloo", default=0)

    @property
    def roles(self) -> dict[str, Replicas]:
        """The roles that the job has, servers first."""
        return {**({} if self.ps is None else {"ps": self.ps}), "worker": self.worker}

    @property
    def template(self) -> PodTemplate:
        """The workers' template."""
        return self.worker.template

    @property
    def completions(self) -> int:
        """How many pods the job has."""
        return sum(role.count for role in self.roles.values())


AnyJob = Job | PaddleJob


class Service(_Part):
    """A headless Service: names of the pods that it selects, whether or not they are ready."""

    name: str = _field("metadata", "name")
    namespace: str = _field("metadata", "namespace", default="default")
    cluster_ip: Literal["None"] = _field("spec", "clusterIP")
    publishes_not_ready: Literal[True] = _field("spec", "publishNotReadyAddresses")
    selector: dict[str, str] = _field("spec", "selector", default={})


class Claim(_Part):
    """A PersistentVolumeClaim."""

    name: str = _field("metadata", "name")
    volume: str | None = _field("spec", "volumeName", default=None)


class ConfigMap(_Part):
    """A ConfigMap."""

    name: str = _field("metadata", "name")
    data: dict[str, str] = {}


_CLASSES: Mapping[str, type[_Part]] = {
    "Job": Job,
    "PaddleJob": PaddleJob,
    "Service": Service,
    "PersistentVolumeClaim": Claim,
    "ConfigMap": ConfigMap,
}


@dataclass(frozen=True)
class Manifests:
    """The objects of the written YAML that a rehearsal uses."""

    jobs: tuple[Job, ...]
    services: tuple[Service, ...]
    claims: Mapping[str, bool]
    """By name. True if folders that the kubelet makes there belong to the pod's user, as behind an
    EFS access point, not root.
    """
    config_maps: Mapping[str, Mapping[str, str]]
    without_effect: tuple[fields.WithoutEffect, ...] = ()
    paddle_jobs: tuple[PaddleJob, ...] = ()

    @property
    def work(self) -> tuple[AnyJob, ...]:
        """The objects that run pods."""
        return (*self.jobs, *self.paddle_jobs)


def load(files: list[Path]) -> list[dict[str, Any]]:
    """Returns every document of `files`, in the given order."""
    documents: list[dict[str, Any]] = []
    for file in files:
        try:
            documents += [document for document in yaml.safe_load_all(file.read_text()) if document]
        except (OSError, yaml.YAMLError) as error:
            reason = " ".join(str(error).split())
            raise BadInput(f"{file}: not readable as YAML: {reason}") from error
    return documents


def read(documents: list[dict[str, Any]]) -> Manifests:
    """Returns `documents` as typed objects. Raises BadInput for anything that cannot be
    rehearsed.
    """
    documents, sidecars = _without_sidecars(documents)
    without_effect = fields.check(documents, _CLASSES)
    if sidecars:
        note = fields.WithoutEffect("no image is pulled, so sidecars do not run here", sidecars)
        without_effect.append(note)
    jobs, paddle_jobs = _read_all(Job, documents), _read_all(PaddleJob, documents)
    templates = [job.template for job in jobs]
    for job in jobs:
        _check_job(job)
    for paddle_job in paddle_jobs:
        of_roles = [role.template for role in paddle_job.roles.values()]
        templates += of_roles
        if any(template.token for template in of_roles):
            raise BadInput(
                f"PaddleJob {paddle_job.name}: automountServiceAccountToken is true: there is no "
                "API server here for the pods of a PaddleJob"
            )
    volumes = {
        document["metadata"]["name"]: document.get("spec", {})
        for document in documents
        if document["kind"] == "PersistentVolume"
    }
    claims = {
        claim.name: "csi" in volumes.get(claim.volume, {}) for claim in _read_all(Claim, documents)
    }
    used = {volume.claim for template in templates for volume in template.volumes.values()}
    if elsewhere := sorted(f"claim {claim}" for claim in used - {None, *claims}):
        reason = "a cluster has it already; the rehearsal's folder stands for it"
        without_effect.append(fields.WithoutEffect(reason, tuple(elsewhere)))
    config_maps = {part.name: part.data for part in _read_all(ConfigMap, documents)}
    services = _read_all(Service, documents)
    return Manifests(jobs, services, claims, config_maps, tuple(without_effect), paddle_jobs)


def _without_sidecars(
    documents: list[dict[str, Any]],
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Returns the documents without sidecars and what only these mount, and the sidecars' names."""
    names: set[str] = set()
    documents = copy.deepcopy(documents)
    for document in documents:
        spec = document.get("spec") or {}
        roles = [spec.get(role) for role in ("ps", "worker")]
        for holder in (spec, *roles):
            pod = ((holder or {}).get("template") or {}).get("spec") or {}
            containers = pod.get("initContainers") or []
            sidecars = [
                container for container in containers if container.get("restartPolicy") == "Always"
            ]
            if not sidecars:
                continue
            names.update(str(sidecar.get("name")) for sidecar in sidecars)
            others = [container for container in containers if container not in sidecars]
            pod["initContainers"] = others
            unused = _mounted_volumes(sidecars)
            unused -= _mounted_volumes([*others, *pod.get("containers", [])])
            volumes = pod.get("volumes", [])
            pod["volumes"] = [volume for volume in volumes if volume.get("name") not in unused]
    return documents, tuple(sorted(names))


def _mounted_volumes(containers: list[dict[str, Any]]) -> set[str]:
    return {
        mount.get("name") for container in containers for mount in container.get("volumeMounts", [])
    }


def _check_job(job: Job) -> None:
    if job.suspended and _QUEUE not in job.labels:
        raise BadInput(f"Job {job.name}: spec.suspend is true: nothing here would ever resume it")
    if job.parallelism < job.completions:
        raise BadInput(
            f"Job {job.name}: spec.parallelism is {job.parallelism}: all {job.completions} pods "
            "run side by side here"
        )


def _read_all(part: type[T], documents: list[dict[str, Any]]) -> tuple[T, ...]:
    return tuple(
        _read(part, document) for document in documents if _CLASSES.get(document["kind"]) is part
    )


def _read(part: type[T], document: dict[str, Any]) -> T:
    try:
        return part.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        name = f"{document['kind']} {document['metadata']['name']}"
        value = "missing" if first["type"] == "missing" else first["input"]
        field = ".".join(map(str, first["loc"]))
        raise BadInput(f"{name}: {field} is {value}: {first['msg']}") from None
