"""A pod that passes Pod Security "restricted" and can still train: templates/pod.yaml, with what a
job fills in.
"""

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from constructs import Construct
from paddle_node import contract
from paddle_node.contract import Label, Variable

from k8s_charts import names, yaml_documents
from k8s_charts.deployed import ClusterOutputs
from k8s_charts.job_chart import JobChart
from k8s_charts.pods import job_folder, scheduling
from k8s_charts.pods.hook_faults import hook_faults
from k8s_charts.spec import TrainingJob, pod_security
from paddle_settings.errors import SettingError
from paddle_settings.model import Settings

Object = dict[str, Any]
Customize = Callable[[Object, names.Role], None]
"""Changes the template of a role's pods (metadata and spec) in place, before names are taken from
it.
"""
INLINE_PROGRAMS = "/opt/paddle/own"
"""Where a program from a ConfigMap is mounted: beside the image's programs, without hiding them."""


class PodChart(JobChart):
    """A chart with pods, and the place where a subclass or `customize` changes them.

    Args:
        job: the job.
        outputs: the stacks' outputs.
        image: the trainer image, by digest.
        labels: labels of all objects in the chart; a pod's are part of its template.
        customize: called as `customize_pod`: changes a pod's template in place.
    """

    ending = ""
    """What follows the job's name in the chart's id."""
    role: names.Role
    """Of the pods, in the labels of the chart's ConfigMaps."""

    def __init__(
        self,
        scope: Construct,
        job: TrainingJob,
        outputs: ClusterOutputs,
        image: str,
        *,
        labels: Mapping[str, str] | None = None,
        customize: Customize | None = None,
    ) -> None:
        super().__init__(scope, f"{job.name}{self.ending}", job, labels=labels)
        self._job, self._outputs, self._trainer_image = job, outputs, image
        self._customize = customize
        self._mounted: list[tuple[Object, Object]] = []
        self._add_objects()

    @abstractmethod
    def _add_objects(self) -> None:
        """Adds what the chart is for."""

    def customize_pod(self, template: Object, role: names.Role) -> None:
        """Changes the template of a role's pods in place. Override it for a subclass's pods.

        The chart calls it while it is constructed, before it names what Kubernetes refuses to
        change: another template is another Job. The pods must still pass `pod_security`.
        """
        if self._customize is not None:
            self._customize(template, role)

    def _add_config_map(
        self, ending: str, data: Mapping[str, str], scope: Construct | None = None
    ) -> str | None:
        """Adds an immutable ConfigMap and returns its name, which contains a hash of its data; None
        if there is no data.

        So neither the settings nor the inline program of a running job can change.
        """
        if not data:
            return None
        job, name = self._job, names.hashed_name(f"{self._job.name}-{ending}", data)
        labels = names.labels(job, self.role)
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": job.namespace, "labels": labels},
            "data": dict(data),
            "immutable": True,
        }
        yaml_documents.add(scope or self, yaml_documents.plain(document))
        return name

    def _mount_config_map(self, folder: str, place: str, name: str | None) -> None:
        """Lets all pods see the ConfigMap, if there is one, at `place`."""
        if name is not None:
            self._mounted.append(
                _folder(folder, place, {"configMap": {"name": name}}, readOnly=True)
            )

    def _mount_program(self) -> None:
        name = self._add_config_map("program", self._job.program.files)
        self._mount_config_map("program", f"{INLINE_PROGRAMS}/{self._job.program.folder}", name)

    def _mount_certificates(self) -> None:
        """Adds what the pods trust beside the public certificates, if the cluster has any."""
        if trusted := self._outputs.certificates:
            place = PurePosixPath(contract.CERTIFICATES)
            scope = Construct(self, "certificates")
            name = self._add_config_map(f"{self.role}-certificates", {place.name: trusted}, scope)
            self._mount_config_map("certificates", str(place.parent), name)

    def _template(
        self,
        role: names.Role,
        container: Object,
        spec: Object,
        annotations: Mapping[str, str] | None = None,
    ) -> Object:
        """Returns the template of one role's pods. `container` and `spec` are fields that override
        those of templates/pod.yaml.

        Raises SettingError if `customize_pod` or the job's `pod` leaves a pod that breaks
        `pod_security`, or that the job's policies cannot find.
        """
        job, image, auto = self._job, self._trainer_image, bool(self._outputs.auto_mode)
        prepares = role in ("data", "environment")
        resources = job.data_resources if prepares else job.resources
        environment = names.environment(job, image) if role != "data" or job.reads_records else None
        without_gpus = prepares or (role == "ps" and not job.gpus.parameter_servers)
        gpus = 0 if without_gpus else job.gpus.count
        efa = job.resources.efa if role == "trainer" else 0
        (pod,) = yaml_documents.template(
            "pod.yaml",
            home=contract.HOME,
            scratch=resources.scratch,
            uid=contract.UID,
            gid=contract.GID,
            grace=job.limits.grace_period_seconds,
        )
        kept = {"karpenter.sh/do-not-disrupt": "true"} if auto else {}
        pod["metadata"] = {
            "labels": names.labels(job, role),
            "annotations": {**(annotations or {}), **kept} or None,
        }
        pod_spec = pod["spec"]
        (first,) = pod_spec["containers"]
        first |= {
            "image": image,
            "imagePullPolicy": pull_policy(image),
            "resources": scheduling.requirements(resources, gpus, efa, auto=auto),
        }
        first |= container
        pod_spec |= {**scheduling.placement(job, role, gpus=gpus > 0, auto=auto), **spec}
        folders = list(self._mounted)
        if not prepares:
            memory = {"medium": "Memory", "sizeLimit": job.resources.chosen_shared_memory}
            folders.insert(
                0, _folder("shared-memory", contract.SHARED_MEMORY, {"emptyDir": memory})
            )
        for volume, mount in folders:
            pod_spec["volumes"].append(volume)
            first["volumeMounts"].append(mount)
        if job.volume.kind != "none":
            claim = {"claimName": names.claim(job, self._outputs)}
            pod_spec["volumes"].insert(
                0, {"name": job_folder.VOLUME, "persistentVolumeClaim": claim}
            )
            mounts = job_folder.mounts(job, role, environment)
            first["volumeMounts"] = [*mounts, *first["volumeMounts"]]
            pod_spec["initContainers"] = job_folder.folder_maker(
                job, role, environment, first, scheduling.requirements(resources)
            )
        filled: Object = yaml_documents.plain(pod)
        _add(filled, job, role)
        before = copy.deepcopy(filled)
        self.customize_pod(filled, role)
        if filled != before:
            pod_list = job.discovery == "pod-list"
            _refuse(role, hook_faults(before, filled, pod_list=pod_list))
        filled = yaml_documents.plain(filled, empty=True)
        _refuse(role, _faults(filled, job, role))
        return filled

    def _add_job(
        self,
        document: Object,
        *,
        stem: str,
        fingerprint: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Adds a Job of `job_document`, named `<stem>-<fingerprint>`, or `stem` alone with
        `pin_names`: Kubernetes refuses to change a Job, so a changed one is another object.
        `fingerprint`: by default the document's own.
        """
        job = self._job
        name = stem if job.pin_names else f"{stem}-{fingerprint or names.fingerprint(document)}"
        labels = {**names.labels(job, self.role), **(labels or {})}
        metadata = {"name": name, "namespace": job.namespace, "labels": labels}
        document = {**document, "metadata": metadata}
        if job.pin_names:
            yaml_documents.add(self, document)
        else:
            yaml_documents.NamedByContent(self, document, stem=stem)

    def _add_disruption_budget(
        self, min_available: int, selector: Mapping[str, Any], labels: Mapping[str, str]
    ) -> None:
        """Adds a PodDisruptionBudget: how many of the pods a drain has to leave alone."""
        (budget,) = yaml_documents.template(
            "disruption_budget.yaml",
            job=self._job.name,
            namespace=self._job.namespace,
            min_available=min_available,
        )
        budget["metadata"]["labels"], budget["spec"]["selector"] = labels, selector
        yaml_documents.add(self, budget)


def _folder(name: str, path: str, source: Object, **fields: object) -> tuple[Object, Object]:
    """Returns a volume of a pod, and its mount."""
    return {"name": name, **source}, {"name": name, "mountPath": path, **fields}


class FieldPath(str):
    """A variable's value that the pod gets from its own fields (downward API)."""


LEAST_KEPT = 60
"""Seconds that a finished Job stays at least: its watchers poll every few seconds."""


def literal(value: str) -> str:
    """Returns a value that the kubelet's expansion turns back into `value`.

    The kubelet reads `$(NAME)` as a reference and `$$` as one `$`, and damages a lone `$` before a
    letter beyond ASCII. Doubling every `$` is exact.
    """
    return value.replace("$", "$$")


def settings_by_variable(settings: Settings) -> dict[Any, object]:
    """Returns the settings of a group that pods get unchanged, each under the variable in its
    field's annotation.
    """
    fields = type(settings).model_fields.items()
    return {
        variable: getattr(settings, name)
        for name, field in fields
        for variable in field.metadata
        if isinstance(variable, Variable)
    }


def text(value: object) -> str:
    """Returns a variable's value as text."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def environment(values: Mapping[Any, object]) -> list[Object]:
    """Returns a container's variables in the order given, without those that are None."""
    return [
        {
            "name": str(name),
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": str(value)}},
        }
        if isinstance(value, FieldPath)
        else {"name": str(name), "value": text(value)}
        for name, value in values.items()
        if value is not None
    ]


def identity(job: TrainingJob) -> dict[Variable, str]:
    """Returns the variables by which a pod of a Job knows its run."""
    return {
        Variable.JOB_NAME: job.name,
        # The Job controller sets these labels. The object's name is unknown here: it contains a
        # hash of this very template.
        Variable.RUN_ID: FieldPath(f"metadata.labels['{Label.RUN_ID}']"),
        Variable.JOB_OBJECT: FieldPath(f"metadata.labels['{Label.JOB_NAME}']"),
        Variable.POD_NAME: FieldPath("metadata.name"),
        Variable.NODE: FieldPath("spec.nodeName"),
        Variable.POD_IP: FieldPath("status.podIP"),
        Variable.JOB_NAMESPACE: job.namespace,
    }


def environment_from(job: TrainingJob, settings: str | None = None) -> list[Object]:
    """Returns the sources of a trainer's other variables. The later one wins: a Secret changes no
    setting of the job.
    """
    named = {"secretRef": job.environment_from, "configMapRef": settings}
    return [{kind: {"name": name}} for kind, name in named.items() if name is not None]


def pull_policy(image: str) -> str:
    """Returns Kubernetes' own default: a digest or version is pulled once, so a preloaded image is
    used; `latest` each time.
    """
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "IfNotPresent" if digest or tag not in ("", "latest") else "Always"


def _refuse(role: names.Role, faults: Iterable[str]) -> None:
    """Raises SettingError if there is a fault."""
    if faults := list(faults):
        raise SettingError("\n".join(f"the {role} pod's {fault}" for fault in faults))


def _add(template: Object, job: TrainingJob, role: names.Role) -> None:
    """Adds what the job's `pod` or `data_pod` says."""
    prepares = role in ("data", "environment")
    more = job.data_pod if prepares and job.data_pod is not None else job.pod
    metadata, spec = template["metadata"], template["spec"]
    metadata["labels"] |= more.labels
    if more.annotations:
        metadata["annotations"] = {**more.annotations, **metadata.get("annotations", {})}
    if more.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret.name} for secret in more.image_pull_secrets]
    if more.runtime_class_name is not None:
        spec["runtimeClassName"] = more.runtime_class_name
    if more.affinity:
        spec["affinity"] = scheduling.merge_affinity(more.affinity, spec.get("affinity"))
    if role == "environment":
        # Code of package authors runs there: it sees nothing that is meant for the job.
        return
    spec["volumes"] = [*spec["volumes"], *more.volumes]
    spec["containers"][0]["volumeMounts"] += more.volume_mounts
    if more.init_containers:
        spec["initContainers"] = [*spec.get("initContainers", ()), *more.containers()]


def _faults(template: Object, job: TrainingJob, role: names.Role) -> Iterator[str]:
    """Yields why Kubernetes would refuse an extended template, or why the job could not find its
    pods.
    """
    spec, labels = template["spec"], template["metadata"].get("labels", {})
    for label, value in names.labels(job, role).items():
        if labels.get(label) != value:
            yield f"label {label} is {labels.get(label)}: {value} is needed"
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    entries = {"containers": [container["name"] for container in containers]}
    entries["volumes"] = [volume["name"] for volume in spec["volumes"]]
    for container in containers:
        mounts = container.get("volumeMounts", ())
        entries[f"{container['name']}.volumeMounts"] = [mount["mountPath"] for mount in mounts]
        for mount in mounts:
            if mount["name"] not in entries["volumes"]:
                at = f"{container['name']}.volumeMounts"
                yield f"{at} has {mount['name']}: no volume has that name"
    for place, values in entries.items():
        for value in dict.fromkeys(value for value in values if values.count(value) > 1):
            yield f"{place} has {value} twice: each may be there once"
    for fault in pod_security.faults(spec, job.pod_security_level):
        yield f"{fault} by {job.pod_security_level} pod security; a weaker pod_security allows more"


def job_document(
    job: TrainingJob, template: Object, pods: int, *, indexed: bool, suspend: bool | None = None
) -> Object:
    """Returns a Job without its metadata: `pods` in parallel, which end at the job's limits.

    With indexed pods, each index counts its own failures, and one that has used up its retries
    fails the Job.
    """
    retries = job.limits.retries
    spec = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed" if indexed else "NonIndexed",
        "podFailurePolicy": {"rules": _failure_rules(template)},
        # A replacement starts after its predecessor is gone: two pods of one index would do the
        # same work twice.
        "podReplacementPolicy": "Failed",
        "activeDeadlineSeconds": int(job.limits.hours * 3600),
        "ttlSecondsAfterFinished": None
        if job.limits.keep_finished == "never"
        else max(LEAST_KEPT, int(job.limits.keep_finished_hours * 3600)),
        "suspend": suspend,
        **(
            {"backoffLimitPerIndex": retries, "maxFailedIndexes": 0}
            if indexed
            else {"backoffLimit": retries}
        ),
    }
    # The template is plain already; an empty selector that somebody added to it means everything.
    filled = {**yaml_documents.plain(spec), "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": dict(sorted(filled.items()))}


def _failure_rules(template: Object) -> list[Object]:
    """Returns rules that fail the Job at once on faults that no retry can fix, and count none for a
    drained or reclaimed node.
    """
    codes = {"operator": "In", "values": sorted(int(code) for code in contract.FAIL_JOB)}
    spec = template["spec"]
    # Exit codes of added containers mean something else.
    ours = [container["name"] for container in spec.get("initContainers", ())]
    ours = [*(name for name in ours if name == job_folder.MAKER), spec["containers"][0]["name"]]
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    return [
        *({"action": "FailJob", "onExitCodes": {"containerName": name, **codes}} for name in ours),
        {"action": "Ignore", "onPodConditions": [disrupted]},
    ]


def restart_rules(outputs: ClusterOutputs) -> Object:
    """Returns fields of a container that the kubelet restarts in its pod after some exit codes,
    which the Job does not count.
    """
    if not outputs.restarts_in_place:
        return {}
    codes = {"operator": "In", "values": list(contract.RESTART_IN_PLACE)}
    return {
        "restartPolicy": "Never",
        "restartPolicyRules": [{"action": "Restart", "exitCodes": codes}],
    }
