"""Golden documents: each fits Kubernetes' own schema, and none refers to what nobody makes, for which a cluster would wait.

A real API server takes the documents, and lets their pods in, in tests/operations/test_real_cluster.py; how safe pods are is
checkov's matter (test_security_review.py).
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from k8s_charts.kinds import evaluation
from k8s_charts.names import COMPONENT

pytestmark = pytest.mark.slow

Document = dict[str, Any]
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.yaml"))


def templates(document: Document) -> list[Document]:
    """The templates of every pod that a document leads to."""
    spec = document.get("spec", {})
    holders = [spec, *(spec.get(role, {}) for role in ("ps", "worker") if document["kind"] == "PaddleJob")]
    return [holder["template"] for holder in holders if "template" in holder]


def faults(documents: list[Document]) -> Iterator[str]:
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
        containers = [*pod["containers"], *pod.get("initContainers", [])]
        mounts = [[(mount["mountPath"], mount["name"]) for mount in one.get("volumeMounts", [])] for one in containers]
        if {name for one in mounts for _, name in one} != {volume["name"] for volume in pod.get("volumes", [])}:
            yield "mounts and volumes are not the same"
        if any(len(dict(one)) < len(one) for one in mounts):
            yield "two mounts in one place"
        if pod.get("serviceAccountName") not in made:
            yield f"service account {pod['serviceAccountName']} is made nowhere"
        if "subdomain" in pod and by_kind["Service"][pod["subdomain"]]["spec"]["clusterIP"] != "None":
            yield "subdomain is no headless Service"
        read = [volume["configMap"]["name"] for volume in pod.get("volumes", []) if "configMap" in volume]
        sources = [source for container in pod["containers"] for source in container.get("envFrom", [])]
        read += [source["configMapRef"]["name"] for source in sources if "configMapRef" in source]
        if not all(by_kind["ConfigMap"].get(name, {}).get("immutable") for name in read):
            yield "a ConfigMap is made nowhere, or can change under the job"


CUSTOM = ("PaddleJob", "PodGroup")
"""Kinds that Kubernetes has no schema for: PaddleJob's is ours (test_paddle_job.py), PodGroup's is Volcano's."""


@cache
def valid(document: str, version: str) -> bool:
    """Whether a document fits; jobs share many, and a look takes a tenth of a second."""
    found: str = kubernetes_validate.validate(json.loads(document), version, strict=True)
    return found == version


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_each_fits_the_strict_schema_of_each_version_that_eks_supports(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        if document["kind"] not in CUSTOM:
            assert all(valid(json.dumps(document), version) for version in ("1.34", "1.35", "1.36"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_documents_fit_each_other(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    trainings = [d for d in documents if d["kind"] == "Job" and d["metadata"]["labels"][COMPONENT] == "trainer"]
    # And the Job that `paddle-aws evaluate` makes from it.
    documents += [evaluation.job(d, f"{d['metadata']['name']}-evaluate") for d in trainings]
    assert list(faults(documents)) == []
