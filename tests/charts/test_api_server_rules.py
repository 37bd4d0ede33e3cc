"""What an API server refuses, or would wait for, although each document fits its schema: names and references.

A real API server takes the shipped documents, and lets their pods in, in tests/operations/test_real_cluster.py; how safe pods
are is checkov's matter (test_security_review.py).
"""

import re
from collections.abc import Iterator
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
LABEL_VALUE = re.compile(r"(?=.{0,63}$)([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)(?=.{1,15}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
CLUSTER_WIDE = {"Namespace", "PersistentVolume", "CustomResourceDefinition"}


def templates(document: Document) -> list[Document]:
    """The templates of every pod that a document leads to."""
    spec = document.get("spec", {})
    holders = [spec, *(spec.get(role, {}) for role in ("ps", "worker") if document["kind"] == "PaddleJob")]
    return [holder["template"] for holder in holders if "template" in holder]


def name_faults(document: Document) -> Iterator[str]:
    kind, metadata, spec = document["kind"], document["metadata"], document.get("spec", {})
    if not (LABEL if kind in ("Service", "Namespace", "Job") else SUBDOMAIN).fullmatch(metadata["name"]):
        yield f"name {metadata['name']}"
    if (kind in CLUSTER_WIDE) == ("namespace" in metadata):
        yield f"{kind} with or without a namespace"
    if spec.get("completionMode") == "Indexed" and not LABEL.fullmatch(f"{metadata['name']}-{spec['completions'] - 1}"):
        yield "the host name of the last index is no DNS label"
    for labels in (metadata.get("labels", {}), *(template["metadata"]["labels"] for template in templates(document))):
        yield from (f"label {label}: {text}" for label, text in labels.items() if not LABEL_VALUE.fullmatch(text))


def pod_faults(spec: Document) -> Iterator[str]:
    containers = [*spec["containers"], *spec.get("initContainers", [])]
    if {m["name"] for c in containers for m in c.get("volumeMounts", [])} != {v["name"] for v in spec.get("volumes", [])}:
        yield "mounts and volumes are not the same"
    for container in containers:
        paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
        ports = container.get("ports", [])
        if len(paths) != len(set(paths)) or len({port["containerPort"] for port in ports}) != len(ports):
            yield "two mounts or ports in one place"
        if not all(PORT_NAME.fullmatch(port["name"]) for port in ports):
            yield f"ports {ports}"


def reference_faults(documents: list[Document]) -> Iterator[str]:
    """Documents that have to fit each other."""
    by_kind: dict[str, dict[str, Document]] = {}
    for document in documents:
        by_kind.setdefault(document["kind"], {})[document["metadata"]["name"]] = document
    if sum(map(len, by_kind.values())) != len(documents):
        yield "two documents have one name"
    pods = [template for document in documents for template in templates(document)]
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
        for name, document in by_kind.get(kind, {}).items():
            spec = document["spec"]
            selector = spec["selector"] if kind == "Service" else spec.get("podSelector", spec.get("selector"))["matchLabels"]
            if not any(selector.items() <= pod["metadata"]["labels"].items() for pod in pods):
                yield f"{kind} {name} selects nothing"
    for document in by_kind.get("NetworkPolicy", {}).values():
        if [] in document["spec"].values():
            yield "an API server drops an empty list, and every apply is a change"
    for name, claim in by_kind.get("PersistentVolumeClaim", {}).items():
        reference = by_kind["PersistentVolume"][claim["spec"]["volumeName"]]["spec"]["claimRef"]
        if (reference["name"], reference["namespace"]) != (name, claim["metadata"]["namespace"]):
            yield "the volume's claimRef is another claim"
    made = {*by_kind.get("ServiceAccount", {}), None}
    for document in by_kind.get("RoleBinding", {}).values():
        if document["roleRef"]["name"] not in by_kind["Role"] or not {s["name"] for s in document["subjects"]} <= made:
            yield "a binding of a role, or for an account, that is made nowhere"
    for pod in (pod["spec"] for pod in pods):
        if pod.get("serviceAccountName") not in made:
            yield f"service account {pod['serviceAccountName']} is made nowhere"
        if "subdomain" in pod and by_kind["Service"][pod["subdomain"]]["spec"]["clusterIP"] != "None":
            yield "subdomain is no headless Service"
        read = [volume["configMap"]["name"] for volume in pod.get("volumes", []) if "configMap" in volume]
        sources = [source for container in pod["containers"] for source in container.get("envFrom", [])]
        read += [source["configMapRef"]["name"] for source in sources if "configMapRef" in source]
        if not all(by_kind["ConfigMap"].get(name, {}).get("immutable") for name in read):
            yield "a ConfigMap is made nowhere, or can change under the job"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_an_api_server_takes_it(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    trainings = [d for d in documents if d["kind"] == "Job" and d["metadata"]["labels"][COMPONENT] == "trainer"]
    # And the Job that `paddle-aws evaluate` makes from it.
    documents += [evaluation.job(d, f"{d['metadata']['name']}-evaluate") for d in trainings]
    found = [fault for document in documents for fault in name_faults(document)] + list(reference_faults(documents))
    found += [fault for document in documents for template in templates(document) for fault in pod_faults(template["spec"])]
    assert found == []
