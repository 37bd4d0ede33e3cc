"""What a Kubernetes API server refuses although the schema allows it, checked on every golden document.

The rules follow k8s.io/kubernetes/pkg/apis/{batch,core,policy,networking}/validation and pod-security-admission's
"restricted" level. Each is shown to bite on a document broken on purpose.
"""

# ruff: noqa: E501 (tables, one row a line)
from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s_charts.kinds import evaluation
from k8s_charts.names import COMPONENT

pytestmark = pytest.mark.slow

Document = dict[str, Any]
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.yaml"))

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
QUALIFIED = re.compile(r"((?=.{1,253}/)[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?(?=.{1,63}$)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"(?=.{0,63}$)([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)(?=.{1,15}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
SCALE = {None: 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
SCALE |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)}
CLUSTER_WIDE = {"Namespace", "PersistentVolume", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "PriorityClass",
                "ResourceFlavor", "ClusterQueue", "Queue"}  # fmt: skip
FIELDS = re.compile(
    r"metadata\.(name|namespace|uid|(labels|annotations)\['[^']+'\])|spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?)"
)
ENUMS = {
    "completionMode": {"Indexed", "NonIndexed"},
    "podReplacementPolicy": {"Failed", "TerminatingOrFailed"},
    "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
    "terminationMessagePolicy": {"File", "FallbackToLogsOnError"},
    "whenUnsatisfiable": {"DoNotSchedule", "ScheduleAnyway"},
    "persistentVolumeReclaimPolicy": {"Retain", "Delete", "Recycle"},
    "volumeMode": {"Filesystem", "Block"},
    "unhealthyPodEvictionPolicy": {"IfHealthyBudget", "AlwaysAllow"},
    "fsGroupChangePolicy": {"OnRootMismatch", "Always"},
    "protocol": {"TCP", "UDP", "SCTP"},
    "effect": {"NoSchedule", "PreferNoSchedule", "NoExecute"},
}


def amount(quantity: str) -> float:
    found = QUANTITY.fullmatch(str(quantity))
    assert found is not None, quantity
    return float(found[1]) * SCALE[found[2]]


def walk(value: Any, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """Every (path, key, value) below a document."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield path, key, below
            yield from walk(below, f"{path}.{key}")
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from walk(below, f"{path}[{index}]")


def pod_templates(document: Document) -> Iterator[tuple[str, Document]]:
    """(who made it, template) of every pod that a document leads to."""
    spec = document.get("spec", {})
    if "template" in spec and "spec" in spec["template"]:
        yield document["kind"], spec["template"]
    for role in ("ps", "worker", "heter"):
        if document["kind"] == "PaddleJob" and role in spec:
            yield "PaddleJob", spec[role]["template"]


def metadata_faults(d: Document) -> Iterator[str]:
    name, pattern = d["metadata"]["name"], LABEL if d["kind"] in ("Service", "Namespace") else SUBDOMAIN
    if d["kind"].endswith(("Role", "RoleBinding")):
        pattern = re.compile(r"(?!\.{1,2}$)[^/%]{1,253}")
    if not pattern.fullmatch(name):
        yield f"name {name}"
    if (d["kind"] in CLUSTER_WIDE) == ("namespace" in d["metadata"]):
        yield "namespace of a cluster-wide object" if d["kind"] in CLUSTER_WIDE else "no namespace"
    for path, key, value in walk(d):
        if key in ("labels", "matchLabels", "nodeSelector") and isinstance(value, dict) and "schema" not in path:
            for label, text in value.items():
                if not QUALIFIED.fullmatch(label) or not isinstance(text, str) or not LABEL_VALUE.fullmatch(text):
                    yield f"label {label}: {text}"
        if key in ENUMS and isinstance(value, str) and "schema" not in path and value not in ENUMS[key]:
            yield f"{key} {value}"


def job_faults(d: Document) -> Iterator[str]:
    spec, name = d["spec"], d["metadata"]["name"]
    template = spec["template"]["spec"]
    indexed = spec.get("completionMode") == "Indexed"
    if indexed and ("completions" not in spec or "parallelism" not in spec):
        yield "Indexed without completions"
    if indexed and not LABEL.fullmatch(f"{name}-{max(spec.get('completions', 1) - 1, 0)}"):
        yield "host name of the last index is no DNS label"
    if not LABEL.fullmatch(name):
        yield "job-name label would be invalid"
    if template.get("restartPolicy") not in ("Never", "OnFailure"):
        yield f"restartPolicy {template.get('restartPolicy')}"
    if "selector" in spec and not spec.get("manualSelector"):
        yield "selector without manualSelector"
    if not indexed and ("backoffLimitPerIndex" in spec or "successPolicy" in spec):
        yield "per-index setting without Indexed"
    if "maxFailedIndexes" in spec and (
        "backoffLimitPerIndex" not in spec or spec["maxFailedIndexes"] > spec.get("completions", 0)
    ):
        yield "maxFailedIndexes without backoffLimitPerIndex, or above completions"
    for field in (
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
        "backoffLimit",
        "backoffLimitPerIndex",
        "parallelism",
        "completions",
    ):
        if field in spec and (not isinstance(spec[field], int) or spec[field] < (1 if field == "activeDeadlineSeconds" else 0)):
            yield f"{field} {spec[field]}"
    policy = spec.get("podFailurePolicy")
    if policy:
        if template.get("restartPolicy") != "Never":
            yield "podFailurePolicy needs restartPolicy Never"
        if spec.get("podReplacementPolicy", "Failed") != "Failed":
            yield "podFailurePolicy needs podReplacementPolicy Failed"
        containers = {c["name"] for c in [*template["containers"], *template.get("initContainers", [])]}
        for rule in policy["rules"]:
            if rule["action"] not in ("FailJob", "Ignore", "Count", "FailIndex"):
                yield f"action {rule['action']}"
            if rule["action"] == "FailIndex" and "backoffLimitPerIndex" not in spec:
                yield "FailIndex without backoffLimitPerIndex"
            if ("onExitCodes" in rule) == ("onPodConditions" in rule):
                yield "a rule needs exactly one of onExitCodes, onPodConditions"
            codes = rule.get("onExitCodes")
            if codes:
                values = codes["values"]
                if values != sorted(set(values)) or not 1 <= len(values) <= 255 or (codes["operator"] == "In" and 0 in values):
                    yield f"exit codes {values}"
                if (
                    codes["operator"] not in ("In", "NotIn")
                    or codes.get("containerName", next(iter(containers))) not in containers
                ):
                    yield "onExitCodes names no container, or its operator is unknown"
            for condition in rule.get("onPodConditions", []):
                if condition.get("status") not in ("True", "False", "Unknown"):
                    yield f"condition status {condition.get('status')!r}"


def pod_faults(template: Document) -> Iterator[str]:
    spec = template["spec"]
    volumes = [v["name"] for v in spec.get("volumes", [])]
    if len(volumes) != len(set(volumes)) or not all(LABEL.fullmatch(v) for v in volumes):
        yield f"volume names {volumes}"
    for volume in spec.get("volumes", []):
        if len(volume) != 2:
            yield f"volume {volume['name']} has {len(volume) - 1} sources"
    containers = [*spec["containers"], *spec.get("initContainers", [])]
    mounted = {m["name"] for c in containers for m in c.get("volumeMounts", [])}
    if mounted - set(volumes):
        yield f"volumeMount without volume: {sorted(mounted - set(volumes))}"
    if set(volumes) - mounted:
        yield f"volume without volumeMount: {sorted(set(volumes) - mounted)}"
    for container in containers:
        paths = [m["mountPath"] for m in container.get("volumeMounts", [])]
        if len(paths) != len(set(paths)):
            yield "two mounts on one path"
        if not LABEL.fullmatch(container["name"]) or not container.get("image"):
            yield "container without a name or an image"
        ports = container.get("ports", [])
        if len({p.get("name") for p in ports}) != len(ports) or len(
            {(p["containerPort"], p.get("protocol")) for p in ports}
        ) != len(ports):
            yield "ports share a name or a number"
        for port in ports:
            if (
                not PORT_NAME.fullmatch(port["name"])
                or not 1 <= port["containerPort"] <= 65535
                or not 1 <= port.get("hostPort", 1) <= 65535
            ):
                yield f"port {port}"
        for variable in container.get("env", []):
            if not VARIABLE.fullmatch(variable["name"]):
                yield f"variable {variable['name']}"
            if "value" in variable and "valueFrom" in variable:
                yield f"{variable['name']} has value and valueFrom"
            field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            if field is not None and not FIELDS.fullmatch(field):
                yield f"fieldPath {field}"
        resources = container.get("resources", {})
        for name, request in resources.get("requests", {}).items():
            limit = resources.get("limits", {}).get(name)
            if limit is not None and amount(request) > amount(limit):
                yield f"request of {name} above its limit"
        for name, limit in resources.get("limits", {}).items():
            if "/" in name and resources.get("requests", {}).get(name, limit) != limit:
                yield f"{name} is not overcommittable: request and limit have to be equal"
            if "/" in name and (amount(limit) != int(amount(limit))):
                yield f"{name} has to be whole"
        for kind in ("livenessProbe", "startupProbe"):
            probe = container.get(kind)
            if probe and (
                probe.get("successThreshold", 1) != 1
                or min(probe.get(k, 1) for k in ("periodSeconds", "timeoutSeconds", "failureThreshold")) < 1
            ):
                yield f"{kind} thresholds"
    for toleration in spec.get("tolerations", []):
        if toleration.get("operator", "Equal") == "Exists" and toleration.get("value"):
            yield "toleration Exists with a value"
        if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
            yield "tolerationSeconds without NoExecute"
    labels = template.get("metadata", {}).get("labels", {})
    for constraint in spec.get("topologySpreadConstraints", []):
        if not constraint["labelSelector"]["matchLabels"].items() <= labels.items():
            yield "spread constraint does not select its own pod"


def restricted_faults(template: Document) -> Iterator[str]:
    """Pod Security Standards, level restricted."""
    spec = template["spec"]
    if any(spec.get(k) for k in ("hostNetwork", "hostPID", "hostIPC")):
        yield "host namespaces"
    allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
    for volume in spec.get("volumes", []):
        if not set(volume) - {"name"} <= allowed:
            yield f"volume type of {volume['name']}"
    pod = spec.get("securityContext", {})
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            yield "privilege escalation"
        if own.get("capabilities", {}).get("drop") != ["ALL"] or set(own.get("capabilities", {}).get("add", [])) - {
            "NET_BIND_SERVICE"
        }:
            yield "capabilities"
        if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True or own.get("runAsUser", pod.get("runAsUser")) == 0:
            yield "root"
        if own.get("seccompProfile", pod.get("seccompProfile", {})).get("type") not in ("RuntimeDefault", "Localhost"):
            yield "seccomp"
        if any("hostPort" in port for port in container.get("ports", [])):
            yield "host ports"


def set_faults(documents: list[Document]) -> Iterator[str]:
    """Documents that have to fit each other."""
    by_kind: dict[str, dict[str, Document]] = {}
    for d in documents:
        same = by_kind.setdefault(d["kind"], {})
        if d["metadata"]["name"] in same:
            yield f"two of {d['kind']} {d['metadata']['name']}"
        same[d["metadata"]["name"]] = d
    namespaces = {d["metadata"]["namespace"] for d in documents if "namespace" in d["metadata"]}
    made = set(by_kind.get("Namespace", {}))
    # kube-system is in every cluster.
    if made and not namespaces - {"kube-system"} <= made:
        yield f"namespace {namespaces - made} is made nowhere"
    pods = [(d, t) for d in documents for _, t in pod_templates(d)]
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
        for d in by_kind.get(kind, {}).values():
            spec = d["spec"]
            selector = spec["selector"] if kind == "Service" else spec.get("podSelector", spec.get("selector"))["matchLabels"]
            chosen = [t for _, t in pods if selector.items() <= t.get("metadata", {}).get("labels", {}).items()]
            if not chosen:
                yield f"{kind} {d['metadata']['name']} selects nothing"
    for d in by_kind.get("PodDisruptionBudget", {}).values():
        if not isinstance(d["spec"].get("minAvailable"), int) or "maxUnavailable" in d["spec"]:
            yield "a budget over a Job's pods takes an integer minAvailable"
    for d in by_kind.get("NetworkPolicy", {}).values():
        for path, key, value in walk(d["spec"]):
            if key == "endPort" and value < 1:
                yield f"{path}.endPort"
            if value == []:
                yield f"{key} is empty: an API server drops it, and every apply is a change"
        if not any(
            {(p["port"], p["protocol"]) for p in rule.get("ports", [])} == {(53, "UDP"), (53, "TCP")}
            for rule in d["spec"]["egress"]
        ):
            yield "pods without the names service"
    for d in by_kind.get("PersistentVolumeClaim", {}).values():
        volume = by_kind.get("PersistentVolume", {}).get(d["spec"].get("volumeName", ""))
        if volume is None:
            yield "claim names no volume"
            continue
        reference = volume["spec"]["claimRef"]
        if (reference["name"], reference["namespace"]) != (d["metadata"]["name"], d["metadata"]["namespace"]):
            yield "volume's claimRef is another claim"
        if set(d["spec"]["accessModes"]) - set(volume["spec"]["accessModes"]):
            yield "claim's access modes"
        if set(volume["spec"]["accessModes"]) - {"ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"}:
            yield "access mode"
        if d["spec"].get("storageClassName") != volume["spec"].get("storageClassName", ""):
            yield "claim and volume differ in storage class"
        if amount(d["spec"]["resources"]["requests"]["storage"]) > amount(volume["spec"]["capacity"]["storage"]):
            yield "claim asks for more than the volume has"
    for d in by_kind.get("RoleBinding", {}).values():
        if d["roleRef"]["name"] not in by_kind.get(d["roleRef"]["kind"], {}):
            yield "binding of a role that is made nowhere"
        for subject in d["subjects"]:
            if subject["name"] not in by_kind.get("ServiceAccount", {}):
                yield "binding for an account that is made nowhere"
    for _, template in pods:
        spec = template["spec"]
        account = spec.get("serviceAccountName")
        if account is not None and account not in by_kind.get("ServiceAccount", {}):
            yield f"service account {account} is made nowhere"
        if (
            "subdomain" in spec
            and by_kind.get("Service", {}).get(spec["subdomain"], {}).get("spec", {}).get("clusterIP") != "None"
        ):
            yield "subdomain is no headless Service"
        mounted = [volume.get("configMap", {}).get("name") for volume in spec.get("volumes", [])]
        sources = [source for c in spec["containers"] for source in c.get("envFrom", [])]
        # A Secret is its owner's: the job file names one that is there.
        read = [source["configMapRef"]["name"] for source in sources if "secretRef" not in source]
        for config in [*mounted, *read]:
            if config is not None and not by_kind.get("ConfigMap", {}).get(config, {}).get("immutable"):
                yield f"ConfigMap {config} is made nowhere, or can change under the job"


def faults(documents: list[Document]) -> list[str]:
    """Everything that an API server would refuse, or that would wait for ever."""
    found = [fault for d in documents for fault in metadata_faults(d)]
    found += [fault for d in documents if d["kind"] == "Job" for fault in job_faults(d)]
    found += [fault for d in documents for _, template in pod_templates(d) for fault in pod_faults(template)]
    levels = {
        d["metadata"]["name"]: d["metadata"]["labels"].get("pod-security.kubernetes.io/enforce")
        for d in documents
        if d["kind"] == "Namespace"
    }
    for d in documents:
        if levels.get(d["metadata"].get("namespace")) == "restricted":
            found += [f"restricted: {fault}" for _, template in pod_templates(d) for fault in restricted_faults(template)]
    return found + list(set_faults(documents))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_an_api_server_takes_it(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    trainings = [d for d in documents if d["kind"] == "Job" and d["metadata"]["labels"][COMPONENT] == "trainer"]
    # And the Job that `paddle-aws evaluate` makes from it.
    assert faults([*documents, *(evaluation.job(d, f"{d['metadata']['name']}-evaluate") for d in trainings)]) == []


Break = Callable[[Document], None]


def on_job(change: Break) -> Break:
    def apply(documents: Any) -> None:
        change(next(d for d in documents if d["kind"] == "Job" and d["spec"].get("completionMode") == "Indexed"))

    return apply


def on_pod(change: Break) -> Break:
    return on_job(lambda d: change(d["spec"]["template"]["spec"]))


def on(kind: str, change: Break) -> Break:
    def apply(documents: Any) -> None:
        change(next(d for d in documents if d["kind"] == kind))

    return apply


BROKEN: dict[str, tuple[Break, str]] = {
    "completion mode": (on_job(lambda d: d["spec"].update(completionMode="indexed")), "completionMode indexed"),
    "indexed without completions": (on_job(lambda d: d["spec"].pop("completions")), "Indexed without completions"),
    "restart policy": (on_pod(lambda s: s.update(restartPolicy="Always")), "restartPolicy Always"),
    "mount without volume": (on_pod(lambda s: s["volumes"].pop()), "volumeMount without volume"),
    "selector that matches nothing": (on("Service", lambda d: d["spec"]["selector"].update(a="b")), "selects nothing"),
    "budget that matches nothing": (on("PodDisruptionBudget", lambda d: d["spec"]["selector"]["matchLabels"].update(a="b")), "selects nothing"),
    "percentage": (on("PodDisruptionBudget", lambda d: d["spec"].update(minAvailable="50%")), "integer minAvailable"),
    "long name": (on_job(lambda d: d["metadata"].update(name="a" * 62)), "host name of the last index"),
    "label": (on_job(lambda d: d["metadata"]["labels"].update(x="a b")), "label x"),
    "capability": (on_pod(lambda s: s["containers"][0]["securityContext"].pop("capabilities")), "restricted: capabilities"),
    "host port": (on_pod(lambda s: s["containers"][0]["ports"][0].update(hostPort=7164)), "restricted: host ports"),
    "seccomp": (on_pod(lambda s: s["securityContext"].pop("seccompProfile")), "restricted: seccomp"),
    "host path": (on_pod(lambda s: s["volumes"][0].update(persistentVolumeClaim=None) or s["volumes"].__setitem__(0, {"name": "job", "hostPath": {"path": "/"}})), "volume type"),
    "field path": (on_pod(lambda s: s["containers"][0]["env"][1]["valueFrom"]["fieldRef"].update(fieldPath="metadata.labels.x")), "fieldPath"),
    "request above limit": (on_pod(lambda s: s["containers"][0]["resources"]["requests"].update(memory="9Gi")), "above its limit"),
    "exit codes": (on_job(lambda d: d["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"].update(values=[0, 2])), "exit codes"),
    "condition without status": (on_job(lambda d: d["spec"]["podFailurePolicy"]["rules"][1]["onPodConditions"][0].pop("status")), "condition status"),
    "replacement policy": (on_job(lambda d: d["spec"].update(podReplacementPolicy="TerminatingOrFailed")), "needs podReplacementPolicy"),
    "account": (on_pod(lambda s: s.update(serviceAccountName="nobody")), "service account nobody"),
    "subdomain": (on_pod(lambda s: s.update(subdomain="elsewhere")), "no headless Service"),
    "another claim": (on("PersistentVolume", lambda d: d["spec"]["claimRef"].update(name="x")), "claimRef"),
    "too small a volume": (on("PersistentVolume", lambda d: d["spec"]["capacity"].update(storage="1Mi")), "more than the volume has"),
    "namespace": (on("Service", lambda d: d["metadata"].pop("namespace")), "no namespace"),
    "port name": (on_pod(lambda s: s["containers"][0]["ports"][0].update(name="a-name-of-16-char")), "port {"),
    "settings that are nowhere": (on("ConfigMap", lambda d: d["metadata"].update(name="x")), "is made nowhere, or can change"),
    "settings that can change": (on("ConfigMap", lambda d: d.pop("immutable")), "can change under the job"),
    "empty list": (on("NetworkPolicy", lambda d: d["spec"].update(ingress=[])), "ingress is empty"),
    "names by UDP alone": (on("NetworkPolicy", lambda d: d["spec"]["egress"][0]["ports"].pop()), "without the names service"),
    "fraction": (on_job(lambda d: d["spec"].update(activeDeadlineSeconds=1.5)), "activeDeadlineSeconds 1.5"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_document_is_found(what: str) -> None:
    documents = copy.deepcopy(list(yaml.safe_load_all((Path(__file__).parent / "golden" / "job.yaml").read_text())))
    change, fault = BROKEN[what]
    change(documents)  # type: ignore[arg-type]
    assert any(fault in found for found in faults(documents)), faults(documents)
