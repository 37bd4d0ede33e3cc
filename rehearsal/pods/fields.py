"""Every field of every manifest is on one of three lists: honoured, without effect here, refused by name.

A field on no list is refused as well, so that nothing a manifest says is dropped in silence. Paths are
dotted; `[]` is each item of a list; a final `.*` is everything below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rehearsal.errors import Refused


class WithoutEffect(NamedTuple):
    """A field that one machine cannot show, and why: printed once for each rehearsal."""

    reason: str
    fields: tuple[str, ...]


# What a container, and a pod template, may say: written once, used below each place that holds one.
_CONTAINER_HONOURED = (
    "name", "command[]", "args[]", "workingDir",
    "env[].name", "env[].value", "env[].valueFrom.fieldRef.fieldPath", "env[].valueFrom.fieldRef.apiVersion",
    "env[].valueFrom.configMapKeyRef.name", "env[].valueFrom.configMapKeyRef.key", "env[].valueFrom.configMapKeyRef.optional",
    "envFrom[].prefix", "envFrom[].configMapRef.name", "envFrom[].configMapRef.optional",
    "volumeMounts[].name", "volumeMounts[].mountPath", "volumeMounts[].subPath", "volumeMounts[].readOnly",
)  # fmt: skip
_PROBES = ("startupProbe", "livenessProbe")
_PROBE_HONOURED = (
    "exec.command[]", "tcpSocket.port", "initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold",
    "successThreshold", "terminationGracePeriodSeconds",
)  # fmt: skip
_CONTAINER_WITHOUT_EFFECT = {
    "image": "every pod runs the files of trainer_image/Dockerfile and the interpreter of .venv-image",
    "imagePullPolicy": "no image is pulled",
    "ports[].*": "a pod has its loopback address to itself",
    "resources.*": "processes share this machine",
    "securityContext.*": "processes run as you",
    "volumeMounts[].recursiveReadOnly": "what you may write, the pod may write",
    "terminationMessagePath": "messages are read from the log",
    "terminationMessagePolicy": "messages are read from the log",
}
_CONTAINER_REFUSED = {
    "lifecycle.*": "container hooks do not run here",
    "readinessProbe.*": "no Service here waits for readiness",
    "env[].valueFrom.secretKeyRef.*": "there is no store of secrets here",
    "env[].valueFrom.resourceFieldRef.*": "resources have no effect here",
    "envFrom[].secretRef.*": "there is no store of secrets here",
    "volumeMounts[].subPathExpr": "use subPath",
    "volumeMounts[].mountPropagation": "there are no mounts here",
    "volumeDevices[].*": "there are no block devices here",
    "restartPolicy": "sidecar containers do not run here",
    "stdin": "nobody is attached", "stdinOnce": "nobody is attached", "tty": "nobody is attached",
}  # fmt: skip

_TEMPLATE_HONOURED = (
    "metadata.labels.*", "metadata.annotations.*",
    "spec.restartPolicy", "spec.terminationGracePeriodSeconds", "spec.activeDeadlineSeconds",
    "spec.hostname", "spec.subdomain", "spec.serviceAccountName", "spec.automountServiceAccountToken",
    "spec.volumes[].name", "spec.volumes[].persistentVolumeClaim.claimName",
    "spec.volumes[].configMap.name", "spec.volumes[].configMap.optional", "spec.volumes[].configMap.items[].key",
    "spec.volumes[].configMap.items[].path", "spec.volumes[].emptyDir",
)  # fmt: skip
_TEMPLATE_WITHOUT_EFFECT = {
    "metadata.creationTimestamp": "set by the API server",
    "metadata.name": "the Job names its pods",
    "spec.securityContext.*": "processes run as you",
    "spec.nodeSelector.*": "there is one machine",
    "spec.affinity.*": "there is one machine",
    "spec.tolerations[].*": "there is one machine",
    "spec.topologySpreadConstraints[].*": "there is one machine",
    "spec.schedulerName": "there is one machine",
    "spec.schedulingGates[].*": "there is one machine",
    "spec.priorityClassName": "nothing is evicted here",
    "spec.preemptionPolicy": "nothing is evicted here",
    "spec.enableServiceLinks": "the rehearsal sets no service variables",
    "spec.dnsPolicy": "names come from the rehearsal's hosts file",
    "spec.imagePullSecrets[].*": "no image is pulled",
    "spec.hostUsers": "processes run as you",
    "spec.os.*": "this machine runs Linux",
    "spec.volumes[].persistentVolumeClaim.readOnly": "what you may write, the pod may write",
    "spec.volumes[].emptyDir.*": "an emptyDir is a plain folder of the pod",
    "spec.volumes[].configMap.defaultMode": "files belong to you",
    "spec.volumes[].configMap.items[].mode": "files belong to you",
}
_TEMPLATE_REFUSED = {
    "spec.hostNetwork": "a pod here has a loopback address",
    "spec.hostPID": "pods share this machine's processes anyway",
    "spec.hostIPC": "pods share this machine's memory anyway",
    "spec.shareProcessNamespace": "each container ends by itself here",
    "spec.ephemeralContainers[].*": "nobody debugs here",
    "spec.hostAliases[].*": "names come from the rehearsal's hosts file",
    "spec.dnsConfig.*": "names come from the rehearsal's hosts file",
    "spec.setHostnameAsFQDN": "the machine keeps its name",
    "spec.nodeName": "there is one machine",
    "spec.runtimeClassName": "there is no container runtime here",
    "spec.resourceClaims[].*": "there are no devices to claim here",
    "spec.volumes[].secret.*": "there is no store of secrets here",
    "spec.volumes[].hostPath.*": "a pod must not see this machine's folders",
    "spec.volumes[].nfs.*": "use a claim: only PersistentVolumes become the rehearsal's folder",
    "spec.volumes[].csi.*": "use a claim: only PersistentVolumes become the rehearsal's folder",
    "spec.volumes[].projected.*": "there is no API server to make tokens",
    "spec.volumes[].downwardAPI.*": "use env with a fieldRef",
    "spec.volumes[].ephemeral.*": "there is no storage provisioner here",
}

_JOB_HONOURED = (
    "spec.parallelism", "spec.completions", "spec.completionMode", "spec.backoffLimit", "spec.backoffLimitPerIndex",
    "spec.maxFailedIndexes", "spec.activeDeadlineSeconds", "spec.podReplacementPolicy", "spec.suspend",
    "spec.podFailurePolicy.rules[].action", "spec.podFailurePolicy.rules[].onExitCodes.containerName",
    "spec.podFailurePolicy.rules[].onExitCodes.operator", "spec.podFailurePolicy.rules[].onExitCodes.values[]",
)  # fmt: skip
_JOB_WITHOUT_EFFECT = {
    "spec.ttlSecondsAfterFinished": "objects go with the rehearsal",
    "spec.podFailurePolicy.rules[].onPodConditions[].*": "nothing is evicted here",
}
_JOB_REFUSED = {
    "spec.successPolicy.*": "every index must succeed here",
    "spec.selector.*": "the Job makes its own selector",
    "spec.manualSelector": "the Job makes its own selector",
    "spec.managedBy": "there is one Job controller here",
}

_ANY_HONOURED = ("apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.labels.*", "metadata.annotations.*")
_WHOLE_KINDS_WITHOUT_EFFECT = {
    "Namespace": "names of one rehearsal do not clash",
    "NetworkPolicy": "loopback traffic is not filtered",
    "PodDisruptionBudget": "nothing is evicted here",
    "PriorityClass": "nothing is evicted here",
    "ResourceQuota": "processes share this machine",
    "LimitRange": "processes share this machine",
    "StorageClass": "the volume is a folder",
    "CSIDriver": "the volume is a folder",
    "Role": "there is no API server to ask",
    "RoleBinding": "there is no API server to ask",
    "PodGroup": "there is one machine",
}
_PADDLE_JOB_HONOURED = ("spec.intranet", "spec.withGloo")
_PADDLE_JOB_WITHOUT_EFFECT = {
    "spec.cleanPodPolicy": "pods go with the rehearsal, their logs stay",
    "spec.schedulingPolicy.*": "there is one machine",
}
_PADDLE_JOB_REFUSED = {"spec.elastic": "there is no etcd here that elastic workers could meet in"}
_ROLES = ("ps", "worker", "heter")
_OPERATORS = {
    "CustomResourceDefinition": ("metadata", "name", "paddlejobs.batch.paddlepaddle.org"),
    "Deployment": ("metadata", "labels", "app.kubernetes.io/name", "paddle-operator"),
}
"""Where the PaddleJob operator's own objects say that they are."""
_REFUSED_KINDS = {
    "CustomResourceDefinition": "there is no API server to extend",
    "Deployment": "only Jobs run here",
    "StatefulSet": "only Jobs run here",
    "DaemonSet": "only Jobs run here",
    "CronJob": "only Jobs run here",
    "Pod": "only Jobs run here",
    "Secret": "there is no store of secrets here",
}


def _below(prefix: str, fields: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}{field}": reason for field, reason in fields.items()}


def _template_lists(at: str) -> tuple[set[str], dict[str, str], dict[str, str]]:
    """The three lists of a pod template whose path is `at`."""
    honoured = {f"{at}{field}" for field in _TEMPLATE_HONOURED}
    without = _below(at, _TEMPLATE_WITHOUT_EFFECT)
    refused = _below(at, _TEMPLATE_REFUSED)
    container, init = f"{at}spec.containers[].", f"{at}spec.initContainers[]."
    for place in (container, init):
        honoured |= {f"{place}{field}" for field in _CONTAINER_HONOURED}
        without |= _below(place, _CONTAINER_WITHOUT_EFFECT)
        refused |= _below(place, _CONTAINER_REFUSED)
    for probe in _PROBES:
        honoured |= {f"{container}{probe}.{field}" for field in _PROBE_HONOURED}
        refused |= _below(f"{container}{probe}.", {"httpGet.*": "use exec", "grpc.*": "use exec"})
        refused[f"{init}{probe}.*"] = "init containers have no probes"
    return honoured, without, refused


def _job_lists() -> tuple[frozenset[str], dict[str, str], dict[str, str]]:
    honoured, without, refused = _template_lists("spec.template.")
    return frozenset({*_ANY_HONOURED, *_JOB_HONOURED, *honoured}), _JOB_WITHOUT_EFFECT | without, _JOB_REFUSED | refused


def _paddle_job_lists() -> tuple[frozenset[str], dict[str, str], dict[str, str]]:
    honoured = {*_ANY_HONOURED, *_PADDLE_JOB_HONOURED, *(f"spec.{role}.replicas" for role in _ROLES)}
    without, refused = dict(_PADDLE_JOB_WITHOUT_EFFECT), dict(_PADDLE_JOB_REFUSED)
    for role in _ROLES:
        also_honoured, also_without, also_refused = _template_lists(f"spec.{role}.template.")
        honoured, without, refused = honoured | also_honoured, without | also_without, refused | also_refused
    return frozenset(honoured), without, refused


_HONOURED: dict[str, frozenset[str]] = {
    "PersistentVolume": frozenset(_ANY_HONOURED),
    "PersistentVolumeClaim": frozenset({*_ANY_HONOURED, "spec.volumeName"}),
    "Service": frozenset({*_ANY_HONOURED, "spec.clusterIP", "spec.selector.*", "spec.publishNotReadyAddresses"}),
    "ConfigMap": frozenset({*_ANY_HONOURED, "data.*"}),
    "ServiceAccount": frozenset(_ANY_HONOURED),
}
_WITHOUT_EFFECT: dict[str, dict[str, str]] = {
    "PersistentVolume": {
        "spec.csi.*": "the volume is a folder",
        "spec.nfs.*": "the volume is a folder",
        "spec.hostPath.*": "the volume is a folder",
        "spec.local.*": "the volume is a folder",
        "spec.nodeAffinity.*": "there is one machine",
        "spec.capacity.*": "the volume is a folder",
        "spec.accessModes[]": "the volume is a folder",
        "spec.mountOptions[]": "the volume is a folder",
        "spec.volumeMode": "the volume is a folder",
        "spec.storageClassName": "the volume is a folder",
        "spec.persistentVolumeReclaimPolicy": "the folder stays until the next rehearsal",
        "spec.claimRef.*": "the claim is known by its name",
    },
    "PersistentVolumeClaim": {
        "spec.resources.*": "the volume is a folder",
        "spec.accessModes[]": "the volume is a folder",
        "spec.storageClassName": "the volume is a folder",
        "spec.volumeMode": "the volume is a folder",
        "spec.selector.*": "the claim is known by its volume's name",
    },
    "Service": {
        "spec.ports[].*": "a pod has its loopback address to itself",
        "spec.type": "a headless Service is a list of names",
        "spec.ipFamilies[]": "loopback addresses are IPv4",
        "spec.ipFamilyPolicy": "loopback addresses are IPv4",
        "spec.internalTrafficPolicy": "there is one machine",
        "spec.sessionAffinity": "names stand for addresses, nothing is balanced",
    },
    "ConfigMap": {"immutable": "nothing changes during a rehearsal"},
    "ServiceAccount": {"automountServiceAccountToken": "there is no API server to ask"},
}
_REFUSED: dict[str, dict[str, str]] = {
    "PersistentVolume": {},
    "PersistentVolumeClaim": {"spec.dataSource.*": "there is no storage provisioner here"},
    "Service": {"spec.externalName": "only headless Services have names here"},
    "ConfigMap": {"binaryData.*": "only text is mounted here"},
    "ServiceAccount": {
        "secrets[].*": "there is no store of secrets here",
        "imagePullSecrets[].*": "no image is pulled",
    },
}
_HONOURED["Job"], _WITHOUT_EFFECT["Job"], _REFUSED["Job"] = _job_lists()
_HONOURED["PaddleJob"], _WITHOUT_EFFECT["PaddleJob"], _REFUSED["PaddleJob"] = _paddle_job_lists()


def honoured(kind: str) -> frozenset[str]:
    """Fields of `kind` that the rehearsal does what they say."""
    return _HONOURED.get(kind, frozenset())


def paths(value: object, at: str = "") -> Iterator[str]:
    """Each leaf's path in a document; an empty map or list is a leaf of its own."""
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from paths(below, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list) and value:
        for item in value:
            yield from paths(item, f"{at}[]")
    else:
        yield at


def _matches(path: str, fields: Mapping[str, str] | frozenset[str]) -> str | None:
    """The listed field that covers `path`: itself, or one of its parents with `.*`."""
    for listed in (path, f"{path}[]"):
        if listed in fields:
            return listed
    parent = path
    while parent:
        if f"{parent}.*" in fields:
            return f"{parent}.*"
        cut = max(parent.rfind("."), parent.rfind("["))
        parent = parent[:cut] if cut > 0 else ""
    return None


def _is_the_operators(document: Mapping[str, Any]) -> bool:
    """Whether the document is the PaddleJob operator's own."""
    *keys, wanted = _OPERATORS.get(str(document.get("kind", "")), ("kind", ""))
    found: Any = document
    for key in keys:
        found = found.get(key, {}) if isinstance(found, Mapping) else {}
    return bool(found == wanted)


def check(documents: list[dict[str, Any]]) -> list[WithoutEffect]:
    """What of `documents` will have no effect here, grouped by reason.

    Raises Refused with the document, the field and the reason for the first field that cannot be rehearsed.
    """
    without: dict[str, set[str]] = {}
    for kind, reason in _REFUSED_KINDS.items():
        for document in documents:
            if document.get("kind") == kind and not _is_the_operators(document):
                raise Refused(f"{kind} {document['metadata']['name']} cannot be rehearsed: {reason}")
    for document in documents:
        kind = str(document.get("kind", ""))
        name = f"{kind} {document.get('metadata', {}).get('name', '')}".strip()
        if _is_the_operators(document):
            without.setdefault("the rehearsal itself plays the PaddleJob operator", set()).add(kind)
            continue
        if kind in _WHOLE_KINDS_WITHOUT_EFFECT:
            without.setdefault(_WHOLE_KINDS_WITHOUT_EFFECT[kind], set()).add(kind)
            continue
        if kind not in _HONOURED:
            known = ", ".join(sorted({*_HONOURED, *_WHOLE_KINDS_WITHOUT_EFFECT}))
            raise Refused(f"{name or 'a document without a kind'}: the rehearsal knows no such kind; it runs {known}")
        for path in paths(document):
            if field := _matches(path, _REFUSED[kind]):
                raise Refused(f"{name}: {path} cannot be rehearsed: {_REFUSED[kind][field]}")
            if _matches(path, _HONOURED[kind]):
                continue
            if field := _matches(path, _WITHOUT_EFFECT[kind]):
                shown = field.removesuffix(".*").removesuffix("[]").rsplit(".", 1)[-1].removesuffix("[]")
                without.setdefault(_WITHOUT_EFFECT[kind][field], set()).add(shown)
                continue
            raise Refused(f"{name}: {path} is a field the rehearsal does not know; it can neither honour nor ignore it")
    return [WithoutEffect(reason, tuple(sorted(fields))) for reason, fields in sorted(without.items())]
