"""Whole manifests as a reviewer reads them: any change of the output changes a file in golden/.

`UPDATE_GOLDEN=1 pytest tests/charts/test_golden.py` rewrites them; read the diff before you commit
it.

Each golden document fits Kubernetes' own schema, or our definition of PaddleJob. None refers to an
object that nothing creates, for which a cluster would wait. checkov, a reviewer that nobody here
has tuned, finds only what security_review.yaml explains. In tests/operations/test_real_cluster.py a
real API server accepts the documents and admits their pods.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubernetes_validate import utils

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import write
from k8s_charts.kinds import evaluation
from k8s_charts.names import COMPONENT
from k8s_charts.spec import TrainingJob

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
FILES = [
    PROJECT / "job.yaml",
    *(HERE / "jobs").glob("*.yaml"),
    *(PROJECT / "examples").glob("[pt][au]*/*.yaml"),
]
CASES = {path.stem: path for path in sorted(FILES)}


IMAGE = "000000000000.dkr.ecr.eu-central-1.amazonaws.com/paddle@sha256:" + "ab" * 32
OTHER_OUTPUTS = {
    "instance-profile": {
        "data_job_credentials": "instance-profile",
        "region": "eu-central-1",
        "kubernetes_version": "1.34",
    },
    "auto-mode-efa": {"auto_mode": "{}"},
}
"""Cluster outputs of a case that differ from those of the other cases."""


@pytest.mark.parametrize("case", CASES)
def test_manifests_are_the_reviewed_ones(
    case: str, outputs: ClusterOutputs, tmp_path: Path
) -> None:
    golden, job = HERE / "golden" / f"{case}.yaml", TrainingJob.load(CASES[case])
    outputs = outputs.model_copy(update=OTHER_OUTPUTS.get(case, {}))
    files = write(job, outputs, job.image or IMAGE, tmp_path)
    text = "".join(f"# {file.name}\n{file.read_text()}" for file in files)
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text(), (
        f"UPDATE_GOLDEN=1 pytest {Path(__file__).name} rewrites {golden}"
    )


Document = dict[str, Any]
GOLDEN = sorted((HERE / "golden").glob("*.yaml"))


def templates(document: Document) -> list[Document]:
    """Returns the templates of all pods that a document leads to."""
    spec = document.get("spec", {})
    holders = [
        spec,
        *(spec.get(role, {}) for role in ("ps", "worker") if document["kind"] == "PaddleJob"),
    ]
    return [holder["template"] for holder in holders if "template" in holder]


def faults(documents: list[Document]) -> Iterator[str]:
    """Yields what does not fit between documents that refer to each other."""
    by_kind: dict[str, dict[str, Document]] = {}
    for document in documents:
        by_kind.setdefault(document["kind"], {})[document["metadata"]["name"]] = document
    if sum(map(len, by_kind.values())) != len(documents):
        yield "two documents have one name"
    pods = [template for document in documents for template in templates(document)]
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
        for name, document in by_kind.get(kind, {}).items():
            spec = document["spec"]
            if name == "paddle-aws-readers":
                continue  # `paddle-aws results` and others make these pods.
            selector = (
                spec["selector"]
                if kind == "Service"
                else spec.get("podSelector", spec.get("selector"))["matchLabels"]
            )
            if not any(selector.items() <= pod["metadata"]["labels"].items() for pod in pods):
                yield f"{kind} {name} selects nothing"
    for document in by_kind.get("NetworkPolicy", {}).values():
        if [] in document["spec"].values():
            yield "an API server drops an empty list, and every apply is a change"
    for name, claim in by_kind.get("PersistentVolumeClaim", {}).items():
        reference = by_kind["PersistentVolume"][claim["spec"]["volumeName"]]["spec"]["claimRef"]
        if (reference["name"], reference["namespace"]) != (name, claim["metadata"]["namespace"]):
            yield "the volume's claimRef is another claim"
    accounts = {*by_kind.get("ServiceAccount", {}), None}
    for document in by_kind.get("RoleBinding", {}).values():
        if (
            document["roleRef"]["name"] not in by_kind["Role"]
            or not {s["name"] for s in document["subjects"]} <= accounts
        ):
            yield "a binding of a role, or for an account, that is made nowhere"
    for pod in (pod["spec"] for pod in pods):
        containers = [*pod["containers"], *pod.get("initContainers", [])]
        mounts = [
            [(mount["mountPath"], mount["name"]) for mount in container.get("volumeMounts", [])]
            for container in containers
        ]
        if {name for places in mounts for _, name in places} != {
            volume["name"] for volume in pod.get("volumes", [])
        }:
            yield "mounts and volumes are not the same"
        if any(len(dict(places)) < len(places) for places in mounts):
            yield "two mounts in one place"
        if pod.get("serviceAccountName") not in accounts:
            yield f"service account {pod['serviceAccountName']} is made nowhere"
        if (
            "subdomain" in pod
            and by_kind["Service"][pod["subdomain"]]["spec"]["clusterIP"] != "None"
        ):
            yield "subdomain is no headless Service"
        read = [
            volume["configMap"]["name"]
            for volume in pod.get("volumes", [])
            if "configMap" in volume
        ]
        sources = [
            source for container in pod["containers"] for source in container.get("envFrom", [])
        ]
        read += [source["configMapRef"]["name"] for source in sources if "configMapRef" in source]
        if not all(by_kind["ConfigMap"].get(name, {}).get("immutable") for name in read):
            yield "a ConfigMap is made nowhere, or can change under the job"


CUSTOM = ("PaddleJob", "PodGroup")
"""Kinds that Kubernetes has no schema for: PaddleJob's is ours, PodGroup's is Volcano's."""


@cache
def valid(document: str, version: str) -> bool:
    """Returns whether a document fits. Results are cached: jobs share many documents, and a check
    takes a tenth of a second.
    """
    used_version: str = kubernetes_validate.validate(json.loads(document), version, strict=True)
    return used_version == version


# It reads the same large files for each document.
utils.schema_contents = cache(utils.schema_contents)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.34", pytest.param("1.35", marks=pytest.mark.long), "1.36"])
def test_documents_fit_the_strict_schema_of_each_version_that_eks_supports(version: str) -> None:
    for path in GOLDEN:
        for document in yaml.safe_load_all(path.read_text()):
            assert document["kind"] in CUSTOM or valid(json.dumps(document), version), path


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_documents_fit_each_other(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    trainings = [
        d
        for d in documents
        if d["kind"] == "Job" and d["metadata"]["labels"][COMPONENT] == "trainer"
    ]
    # Include the Job that `paddle-aws evaluate` makes from each training Job.
    documents += [
        evaluation.evaluation_job(d, f"{d['metadata']['name']}-evaluate") for d in trainings
    ]
    assert list(faults(documents)) == []


def closed(schema: Any) -> Any:
    """Returns the schema as an API server applies it: the server drops what a structural schema
    does not name.
    """
    if not isinstance(schema, dict):
        return schema
    fields = {key: closed(value) for key, value in schema.items()}
    unknown = fields.get("x-kubernetes-preserve-unknown-fields") or not isinstance(
        fields.get("properties"), dict
    )
    return fields if unknown else {**fields, "additionalProperties": False}


@pytest.mark.slow
def test_our_paddle_jobs_and_the_guides_own_but_for_its_slip_fit_the_definition() -> None:
    slip = ["Additional properties are not allowed ('cleanPolicy' was unexpected)"]
    (definition,) = documents_of(HERE / "golden" / "wide-and-deep.yaml", "CustomResourceDefinition")
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    validator = jsonschema.Draft202012Validator(
        closed({**schema, "properties": {**schema["properties"], "metadata": {}}})
    )
    guides = list((HERE / "paddlejob").glob("*.yaml"))
    for path in [*GOLDEN, *guides]:
        for job in documents_of(path, "PaddleJob"):
            faults = [fault.message for fault in validator.iter_errors(job)]
            assert faults == (slip if path in guides and path.stem == "pv-pvc" else [])


def documents_of(path: Path, kind: str) -> list[Document]:
    return [
        document for document in yaml.safe_load_all(path.read_text()) if document["kind"] == kind
    ]


CHECKOV = HERE.parents[1] / ".venv-checkov" / "bin" / "checkov"

KEPT = [tuple(row) for row in yaml.safe_load((HERE / "security_review.yaml").read_text())]


@pytest.mark.slow
@pytest.mark.skipif(
    not CHECKOV.exists(), reason="checkov's environment is not made here (make test)"
)
def test_checkov_finds_nothing_that_is_not_explained(tmp_path: Path) -> None:
    shutil.copytree(HERE / "golden", tmp_path / "golden")
    options = [
        "--framework",
        "kubernetes",
        "--skip-download",
        "--compact",
        "--quiet",
        "--output",
        "json",
    ]
    command = [str(CHECKOV), "--directory", ".", *options]
    done = subprocess.run(
        command, cwd=tmp_path / "golden", capture_output=True, text=True, timeout=300
    )
    report = json.loads(done.stdout)
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] > 2000
    used = set()
    unexplained = []
    for check in report["results"]["failed_checks"]:
        reasons = [
            kept
            for kept in KEPT
            if kept[0] == check["check_id"] and Path(check["resource"]).match(kept[1])
        ]
        used.update(reasons)
        if not reasons:
            unexplained.append(f"{check['check_id']} {check['resource']}: {check['check_name']}")
    assert unexplained == []
    assert set(KEPT) - used == set()
