"""The written manifests, read into typed objects: what the rest of the rehearsal knows of Kubernetes.

Promises: `read()` sees only the YAML on disk; a field it returns is one that is honoured (fields.yaml holds the
lists); a wrong reference (a mount without its volume, a claim without its volume) is one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from rehearsal.errors import Refused
from rehearsal.pods import fields

_QUEUE = "kueue.x-k8s.io/queue-name"
"""Label of a Job that Kueue admits: here it is admitted at once."""


@dataclass(frozen=True)
class EnvironmentEntry:
    """One `env` item: a value, a downward-API field or a ConfigMap's key."""

    name: str
    value: str | None = None
    field_path: str | None = None
    config_map: tuple[str, str] | None = None
    optional: bool = False


@dataclass(frozen=True)
class EnvironmentSource:
    """One `envFrom` item."""

    config_map: str
    prefix: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Mount:
    """One `volumeMounts` item."""

    volume: str
    path: str
    sub_path: str = ""
    read_only: bool = False


@dataclass(frozen=True)
class Probe:
    """Times in seconds; the defaults are Kubernetes'."""

    command: tuple[str, ...] = ()
    port: int | None = None
    initial_delay: float = 0
    period: float = 10
    timeout: float = 1
    failures: int = 3
    successes: int = 1
    grace: float | None = None


@dataclass(frozen=True)
class Container:
    """One container of a pod, init containers included."""

    name: str
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    working_dir: str
    environment: tuple[EnvironmentEntry, ...]
    environment_from: tuple[EnvironmentSource, ...]
    mounts: tuple[Mount, ...]
    startup: Probe | None
    liveness: Probe | None
    restart_codes: frozenset[int] = frozenset()
    """Exit codes after which it is started again in its pod."""


@dataclass(frozen=True)
class Volume:
    """A pod's volume: exactly one of a claim's name, a ConfigMap's name, or a folder of the pod's own."""

    name: str
    claim: str | None = None
    config_map: str | None = None
    items: tuple[tuple[str, str], ...] = ()
    optional: bool = False


@dataclass(frozen=True)
class PodTemplate:
    """What a Job makes its pods from; times in seconds."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    init_containers: tuple[Container, ...]
    containers: tuple[Container, ...]
    volumes: Mapping[str, Volume]
    restart_policy: Literal["Never", "OnFailure"]
    grace: float
    deadline: float | None
    hostname: str
    subdomain: str
    service_account: str


@dataclass(frozen=True)
class FailureRule:
    """One rule of podFailurePolicy that looks at exit codes."""

    action: Literal["FailJob", "Ignore", "Count", "FailIndex"]
    container: str | None
    within: bool
    codes: frozenset[int]

    def matches(self, codes: Mapping[str, int]) -> bool:
        """Whether a failed pod's exit codes (by container) meet this rule; 0 never does, as in Kubernetes."""
        return any(
            code != 0 and (code in self.codes) == self.within
            for name, code in codes.items()
            if self.container is None or name == self.container
        )


@dataclass(frozen=True)
class Job:
    """A Job with Kubernetes' defaults filled in."""

    name: str
    namespace: str
    template: PodTemplate
    parallelism: int
    completions: int
    indexed: bool
    back_off_limit: int
    back_off_limit_per_index: int | None
    max_failed_indexes: int | None
    failure_rules: tuple[FailureRule, ...]
    deadline: float | None


@dataclass(frozen=True)
class Replicas:
    """One role of a PaddleJob."""

    count: int
    template: PodTemplate


@dataclass(frozen=True)
class PaddleJob:
    """A PaddleJob with its operator's defaults filled in."""

    name: str
    namespace: str
    roles: Mapping[str, Replicas]
    """ps, worker, heter: those that it has, in this order."""
    by_service: bool
    """Whether pods are told each other's names; else their addresses."""
    gloo: int
    elastic: bool


@dataclass(frozen=True)
class Service:
    """A headless Service: names of the pods it selects."""

    name: str
    namespace: str
    selector: Mapping[str, str]
    publish_not_ready: bool


@dataclass(frozen=True)
class Manifests:
    """Everything the written YAML says that matters here."""

    jobs: tuple[Job, ...]
    services: tuple[Service, ...]
    claims: Mapping[str, bool]
    """By name; True: what the kubelet makes there belongs to the pod's user, as behind an EFS access point, not to root."""
    config_maps: Mapping[str, Mapping[str, str]]
    service_accounts: frozenset[str]
    without_effect: tuple[fields.WithoutEffect, ...] = field(default=())
    paddle_jobs: tuple[PaddleJob, ...] = ()

    def job(self, name: str) -> Job:
        for job in self.jobs:
            if job.name == name:
                return job
        raise Refused(f"no Job named {name} in the manifests; there are {', '.join(job.name for job in self.jobs) or 'none'}")


def load(files: list[Path]) -> list[dict[str, Any]]:
    """Every document of `files`, in the order given."""
    documents: list[dict[str, Any]] = []
    for file in files:
        try:
            documents += [document for document in yaml.safe_load_all(file.read_text()) if document]
        except (OSError, yaml.YAMLError) as error:
            raise Refused(f"{file}: not readable as YAML: {' '.join(str(error).split())}") from error
    return documents


def read(documents: list[dict[str, Any]]) -> Manifests:
    """Typed objects of `documents`; Refused for anything that cannot be rehearsed."""
    without_effect = fields.check(documents)
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for document in documents:
        by_kind.setdefault(document["kind"], []).append(document)
    volumes = {document["metadata"]["name"]: document.get("spec", {}) for document in by_kind.get("PersistentVolume", [])}
    if len(volumes) > 1:
        raise Refused(f"PersistentVolumes {', '.join(volumes)}: the rehearsal has one shared volume")
    manifests = Manifests(
        jobs=tuple(_job(document) for document in by_kind.get("Job", [])),
        services=tuple(_service(document) for document in by_kind.get("Service", [])),
        claims=dict(_claim(document, volumes) for document in by_kind.get("PersistentVolumeClaim", [])),
        config_maps={d["metadata"]["name"]: d.get("data", {}) for d in by_kind.get("ConfigMap", [])},
        service_accounts=frozenset(d["metadata"]["name"] for d in by_kind.get("ServiceAccount", [])),
        without_effect=tuple(without_effect),
        paddle_jobs=tuple(paddle_job(document) for document in by_kind.get("PaddleJob", [])),
    )
    templates = [(job.template, f"Job {job.name}") for job in manifests.jobs]
    templates += [(role.template, f"PaddleJob {job.name}") for job in manifests.paddle_jobs for role in job.roles.values()]
    for template, where in templates:
        _check_references(template, where, manifests)
    wanted = {volume.claim for template, _ in templates for volume in template.volumes.values() if volume.claim}
    if elsewhere := sorted(f"claim {claim}" for claim in wanted - manifests.claims.keys()):
        note = fields.WithoutEffect("a cluster has it already; the rehearsal's folder stands for it", tuple(elsewhere))
        return replace(manifests, without_effect=(*manifests.without_effect, note))
    return manifests


def _claim(document: dict[str, Any], volumes: Mapping[str, Mapping[str, Any]]) -> tuple[str, bool]:
    name: str = document["metadata"]["name"]
    wanted = document.get("spec", {}).get("volumeName")
    if wanted not in volumes:
        found = wanted or "not set"
        raise Refused(f"PersistentVolumeClaim {name}: spec.volumeName is {found}: no such PersistentVolume, the pods would wait")
    return name, "csi" in volumes[wanted]


def _service(document: dict[str, Any]) -> Service:
    spec, name = document.get("spec", {}), document["metadata"]["name"]
    if spec.get("clusterIP") != "None":
        raise Refused(
            f"Service {name}: spec.clusterIP is {spec.get('clusterIP', 'not set')}: the rehearsal has headless Services (None)"
        )
    return Service(
        name=name,
        namespace=document["metadata"].get("namespace", "default"),
        selector=spec.get("selector", {}),
        publish_not_ready=bool(spec.get("publishNotReadyAddresses", False)),
    )


def _job(document: dict[str, Any]) -> Job:
    spec, name = document["spec"], document["metadata"]["name"]
    if spec.get("suspend") and _QUEUE not in document["metadata"].get("labels", {}):
        raise Refused(f"Job {name}: spec.suspend is true: nothing here would ever resume it")
    mode = spec.get("completionMode", "NonIndexed")
    completions = spec.get("completions", 1)
    if mode == "Indexed" and "completions" not in spec:
        raise Refused(f"Job {name}: spec.completions is not set: an Indexed Job needs it")
    policy = spec.get("podFailurePolicy", {}).get("rules", [])
    template = _template(spec["template"], f"Job {name}")
    if policy and template.restart_policy != "Never":
        raise Refused(f"Job {name}: restartPolicy is {template.restart_policy}: a podFailurePolicy needs Never")
    per_index = spec.get("backoffLimitPerIndex")
    if per_index is not None and mode != "Indexed":
        raise Refused(f"Job {name}: spec.backoffLimitPerIndex is {per_index}: it needs completionMode Indexed")
    return Job(
        name=name,
        namespace=document["metadata"].get("namespace", "default"),
        template=template,
        parallelism=spec.get("parallelism", 1),
        completions=completions,
        indexed=mode == "Indexed",
        back_off_limit=spec.get("backoffLimit", 2**31 - 1 if per_index is not None else 6),
        back_off_limit_per_index=per_index,
        max_failed_indexes=spec.get("maxFailedIndexes"),
        failure_rules=tuple(_rule(rule) for rule in policy if "onExitCodes" in rule),
        deadline=spec.get("activeDeadlineSeconds"),
    )


def paddle_job(document: dict[str, Any]) -> PaddleJob:
    """A PaddleJob's document, read; fields that no rehearsal honours are `read`'s to refuse."""
    spec, name = document["spec"], document["metadata"]["name"]
    if (intranet := spec.get("intranet", "PodIP")) not in ("PodIP", "Service"):
        raise Refused(
            f"PaddleJob {name}: spec.intranet is {intranet}: PodIP or Service is allowed here, each pod has its own address"
        )
    if "worker" not in spec:
        raise Refused(f"PaddleJob {name}: spec.worker is not set: a PaddleJob needs workers")
    return PaddleJob(
        name=name,
        namespace=document["metadata"].get("namespace", "default"),
        roles={
            role: Replicas(spec[role]["replicas"], _template(spec[role]["template"], f"PaddleJob {name}"))
            for role in ("ps", "worker", "heter")
            if role in spec
        },
        by_service=intranet == "Service",
        gloo=spec.get("withGloo", 0),
        elastic="elastic" in spec,
    )


def _rule(rule: dict[str, Any]) -> FailureRule:
    on = rule["onExitCodes"]
    return FailureRule(rule["action"], on.get("containerName"), on["operator"] == "In", frozenset(on["values"]))


def _template(template: dict[str, Any], where: str) -> PodTemplate:
    spec = template["spec"]
    if (policy := spec.get("restartPolicy", "Always")) not in ("Never", "OnFailure"):
        raise Refused(f"{where}: restartPolicy is {policy}: a Job allows Never or OnFailure")
    if spec.get("automountServiceAccountToken"):
        raise Refused(f"{where}: automountServiceAccountToken is true: there is no API server to ask here; use index discovery")
    return PodTemplate(
        labels=template.get("metadata", {}).get("labels", {}),
        annotations=template.get("metadata", {}).get("annotations", {}),
        init_containers=tuple(_container(item) for item in spec.get("initContainers", [])),
        containers=tuple(_container(item) for item in spec["containers"]),
        volumes={item["name"]: _volume(item, where) for item in spec.get("volumes", [])},
        restart_policy=policy,
        grace=spec.get("terminationGracePeriodSeconds", 30),
        deadline=spec.get("activeDeadlineSeconds"),
        hostname=spec.get("hostname", ""),
        subdomain=spec.get("subdomain", ""),
        service_account=spec.get("serviceAccountName", "default"),
    )


def _volume(item: dict[str, Any], where: str) -> Volume:
    name = item["name"]
    if claim := item.get("persistentVolumeClaim"):
        return Volume(name, claim=claim["claimName"])
    if config := item.get("configMap"):
        items = tuple((entry["key"], entry["path"]) for entry in config.get("items", []))
        return Volume(name, config_map=config["name"], items=items, optional=bool(config.get("optional")))
    if "emptyDir" in item:
        return Volume(name)
    raise Refused(f"{where}: volume {name} names no source that the rehearsal knows (persistentVolumeClaim, configMap, emptyDir)")


def _container(item: dict[str, Any]) -> Container:
    rules = item.get("restartPolicyRules", ())
    if (policy := item.get("restartPolicy", "Never")) != "Never" or any(r["exitCodes"]["operator"] != "In" for r in rules):
        raise Refused(f"container {item['name']}: restartPolicy is {policy}: Never is allowed here, and rules with operator In")
    return Container(
        name=item["name"],
        image=item.get("image", ""),
        command=tuple(item.get("command", ())),
        args=tuple(item.get("args", ())),
        working_dir=item.get("workingDir", ""),
        environment=tuple(_environment(entry) for entry in item.get("env", ())),
        environment_from=tuple(
            EnvironmentSource(entry["configMapRef"]["name"], entry.get("prefix", ""), bool(entry["configMapRef"].get("optional")))
            for entry in item.get("envFrom", ())
            if "configMapRef" in entry
        ),
        mounts=tuple(
            Mount(m["name"], m["mountPath"], m.get("subPath", ""), bool(m.get("readOnly"))) for m in item.get("volumeMounts", ())
        ),
        startup=_probe(item.get("startupProbe")),
        liveness=_probe(item.get("livenessProbe")),
        restart_codes=frozenset(code for rule in rules for code in rule["exitCodes"]["values"]),
    )


def _environment(entry: dict[str, Any]) -> EnvironmentEntry:
    source = entry.get("valueFrom", {})
    if reference := source.get("fieldRef"):
        return EnvironmentEntry(entry["name"], field_path=reference["fieldPath"])
    if reference := source.get("configMapKeyRef"):
        key = (reference["name"], reference["key"])
        return EnvironmentEntry(entry["name"], config_map=key, optional=bool(reference.get("optional")))
    return EnvironmentEntry(entry["name"], value=entry.get("value") or "")


def _probe(item: dict[str, Any] | None) -> Probe | None:
    if item is None:
        return None
    return Probe(
        command=tuple(item.get("exec", {}).get("command", ())),
        port=item.get("tcpSocket", {}).get("port"),
        initial_delay=item.get("initialDelaySeconds", 0),
        period=item.get("periodSeconds", 10),
        timeout=item.get("timeoutSeconds", 1),
        failures=item.get("failureThreshold", 3),
        successes=item.get("successThreshold", 1),
        grace=item.get("terminationGracePeriodSeconds"),
    )


def _check_references(template: PodTemplate, where: str, manifests: Manifests) -> None:
    for volume in template.volumes.values():
        if volume.config_map is not None and volume.config_map not in manifests.config_maps and not volume.optional:
            raise Refused(
                f"{where}: volume {volume.name} wants the ConfigMap {volume.config_map}, which is not among the manifests"
            )
    for container in (*template.init_containers, *template.containers):
        for mount in container.mounts:
            if mount.volume not in template.volumes:
                raise Refused(f"{where}: container {container.name} mounts {mount.volume}, which is not among the pod's volumes")
    if template.service_account not in {"default", *manifests.service_accounts}:
        raise Refused(f"{where}: serviceAccountName is {template.service_account}: no such ServiceAccount among the manifests")
