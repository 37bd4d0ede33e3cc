# ruff: noqa: E501 (tables, one row a line)
"""PaddleJobs: the guide's examples reproduced, the kind's definition, and the operator's rights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
EXAMPLES = Path(__file__).parents[2] / "examples" / "paddlejob"
Document = dict[str, Any]

# Fields of the guide that differ in ours: pattern of the path -> (our value, ABSENT or ANYTHING; why).
DIFFERENT: dict[str, tuple[Any, str]] = {
    r"PaddleJob/spec/cleanPolicy": ("ABSENT", "a slip of the guide for cleanPodPolicy, which ours sets"),
    r"PaddleJob/.*/volumes/(data|dshm)/.*": (
        "ABSENT",
        "the same volumes under our names: `job` and `shared-memory` (compared below)",
    ),
    r"PaddleJob/.*/volumeMounts/(data|dshm)/mountPath": (
        "ABSENT",
        "the same mounts under our names, the volume's narrowed to the job's folder (compared below)",
    ),
    r"PaddleJob/.*/args": (
        "ANYTHING",
        "the launcher's logs, on a read-only root (resnet); a program in the job's folder (pv-pvc)",
    ),
    r"PaddleJob/.*/resources": ("ANYTHING", "GPUs as in the guide, and requests and limits beside them (compared below)"),
    r"PersistentVolume(Claim)?/metadata/name": ("ANYTHING", "named after the job: `nfs-pv` would be one for the whole cluster"),
    r"PersistentVolume(Claim)?/spec/accessModes": (["ReadWriteMany"], "four pods share it: ReadWriteOnce is one node's"),
    r"PersistentVolume/spec/persistentVolumeReclaimPolicy": (
        "Retain",
        "Recycle is gone from Kubernetes, and would delete the data",
    ),
    r"PersistentVolume/spec/storageClassName": ("ABSENT", "a class called `slow` would have to exist"),
    r"PersistentVolumeClaim/spec/storageClassName": ("", "no class, and not the cluster's default one either"),
    r"PersistentVolume/spec/nfs/server": ("10.12.201.10", "10.12.201.xx is no address"),
    r"PersistentVolumeClaim/spec/volumeName": ("ANYTHING", "our volume's name"),
}
# Fields of ours that the guide lacks, and why.
ADDED: dict[str, str] = {
    r"[A-Za-z]+/metadata/(namespace|labels/.*)|PaddleJob/.*/metadata/labels/.*": "said, and selected by",
    r"PaddleJob/spec/(intranet|cleanPodPolicy)": "the operator's defaults, said: an empty cleanPodPolicy deletes the logs of a finished job",
    r"PaddleJob/.*/(securityContext|automountServiceAccountToken|serviceAccountName|enableServiceLinks)": "least privilege",
    r"PaddleJob/.*/(resources|restartPolicy|activeDeadlineSeconds|terminationGracePeriodSeconds|terminationMessagePolicy|imagePullPolicy)": "what each pod gets, how it ends, and a tag asked for anew",
    r"PaddleJob/.*/volumes/(home|temporary|shared-memory|job)/.*|PaddleJob/.*/volumeMounts/(home|temporary|shared-memory|job)/mountPath": "writable places on a read-only root",
    r"PaddleJob/.*/initContainers|PaddleJob/.*/volumeMounts/job/subPath": "a job sees its own folder of the volume, which user 1000 makes first",
    r"PaddleJob/.*/env/HOME": "a home that can be written: a foreign image knows no user 1000",
    r"PaddleJob/.*/env/PADDLE_PORT": "where the operator's endpoints of Services lead: what it tells itself is another port",
    r"PaddleJob/.*/(topologySpreadConstraints|tolerations)": "over hosts; spot nodes and GPU taints are tolerated",
    r"PersistentVolume/spec/claimRef": "a claim that can bind this volume only",
    r"PodGroup/spec/minResources/.*": "Volcano waits until all of it is free",
}


def by_kind(found: list[Document]) -> dict[str, Document]:
    return {d["kind"]: d for d in found}


@pytest.fixture(scope="module")
def examples(outputs: ClusterOutputs) -> dict[str, list[Document]]:
    made = {}
    for path in sorted(EXAMPLES.glob("*.yaml")):
        job = TrainingJob.load(path)
        made[path.stem] = documents(job, outputs, job.image or "registry.example/paddle:1")
    return made


PRINTED = {path.stem: path for path in sorted((HERE / "paddlejob").glob("*.yaml"))}


def test_every_example_of_the_guide_is_there(examples: dict[str, list[Document]]) -> None:
    assert set(PRINTED) | {"podip", "service"} <= set(examples)


def test_every_field_is_the_guides_or_has_a_reason(
    examples: dict[str, list[Document]], compare: Callable[..., list[str]]
) -> None:
    used: set[str] = set()
    faults = []
    for name, path in PRINTED.items():
        made = by_kind(examples[name])
        for printed in yaml.safe_load_all(path.read_text()):
            faults += [
                f"{name}: {fault}" for fault in compare(printed["kind"], printed, made[printed["kind"]], DIFFERENT, ADDED, used)
            ]
    assert faults == []
    assert (set(DIFFERENT) | set(ADDED)) - used == set(), "reasons that no example needs any more"


def pod(job: Document, role: str) -> Document:
    found: Document = job["spec"][role]["template"]["spec"]
    return found


@pytest.mark.parametrize("name", PRINTED)
def test_gpus_mounts_and_volumes_are_the_guides(name: str, examples: dict[str, list[Document]]) -> None:
    printed, made = (
        by_kind(list(yaml.safe_load_all(PRINTED[name].read_text())))["PaddleJob"],
        by_kind(examples[name])["PaddleJob"],
    )
    for role in [role for role in ("ps", "worker") if role in printed["spec"]]:
        theirs, ours = pod(printed, role)["containers"][0], pod(made, role)["containers"][0]
        gpu = "nvidia.com/gpu"
        assert str(theirs.get("resources", {}).get("limits", {}).get(gpu)) == str(ours["resources"]["limits"].get(gpu))
        mounted = {m["mountPath"].removesuffix(f"/{made['metadata']['name']}") for m in ours["volumeMounts"]}
        assert {m["mountPath"] for m in theirs.get("volumeMounts", [])} <= mounted
        for volume in pod(printed, role).get("volumes", []):
            if "emptyDir" in volume:
                assert any(v.get("emptyDir", {}).get("medium") == "Memory" for v in pod(made, role)["volumes"])
            else:
                assert any("persistentVolumeClaim" in v for v in pod(made, role)["volumes"])


def test_podip_and_service_differ_in_how_pods_meet(examples: dict[str, list[Document]]) -> None:
    intranets = {name: by_kind(examples[name])["PaddleJob"]["spec"]["intranet"] for name in ("podip", "service")}
    assert intranets == {"podip": "PodIP", "service": "Service"}


def test_a_collective_job_has_workers_only(examples: dict[str, list[Document]]) -> None:
    assert "ps" not in by_kind(examples["resnet"])["PaddleJob"]["spec"]


def test_only_the_workers_name_volcano_and_the_group_is_all_pods(examples: dict[str, list[Document]]) -> None:
    made = by_kind(examples["volcano"])
    assert "schedulerName" not in pod(made["PaddleJob"], "ps")
    assert pod(made["PaddleJob"], "worker")["schedulerName"] == "volcano"
    group = made["PodGroup"]
    assert (group["metadata"]["name"], group["spec"]["minMember"]) == (made["PaddleJob"]["metadata"]["name"], 4)
    assert group["spec"]["minResources"] == {"cpu": "4", "memory": "8Gi"}
    assert "--scheduling=volcano" in made["Deployment"]["spec"]["template"]["spec"]["containers"][0]["args"]


# The definition.


@pytest.fixture(scope="module")
def definition(examples: dict[str, list[Document]]) -> Document:
    return by_kind(examples["wide-and-deep"])["CustomResourceDefinition"]


@pytest.fixture(scope="module")
def schema(definition: Document) -> Document:
    found: Document = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def pruned(value: Any, schema: Document, path: str = "") -> Iterator[str]:
    """Fields that an API server would drop, because the structural schema does not know them."""
    if schema.get("x-kubernetes-preserve-unknown-fields") and "properties" not in schema:
        return
    if isinstance(value, dict):
        for key, below in value.items():
            known = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            if known is not None:
                yield from pruned(below, known, f"{path}.{key}")
            elif not schema.get("x-kubernetes-preserve-unknown-fields") and path != ".metadata":
                yield f"{path}.{key}"
    elif isinstance(value, list):
        for item in value:
            yield from pruned(item, schema.get("items", {}), f"{path}[]")


def refused(document: Document, schema: Document) -> list[str]:
    faults = [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(document)]
    return faults + [f"unknown field {path}" for path in pruned(document, schema)]


def test_every_example_fits_the_definition(examples: dict[str, list[Document]], schema: Document) -> None:
    for made in examples.values():
        assert refused(by_kind(made)["PaddleJob"], schema) == []


def test_the_guides_own_documents_fit_but_for_its_slip(schema: Document) -> None:
    for name, path in PRINTED.items():
        faults = refused(by_kind(list(yaml.safe_load_all(path.read_text())))["PaddleJob"], schema)
        assert faults == (["unknown field .spec.cleanPolicy"] if name == "pv-pvc" else [])


BROKEN: dict[str, Callable[[Document], Any]] = {
    "cleanPodPolicy": lambda d: d["spec"].update(cleanPodPolicy="Sometimes"),
    "empty cleanPodPolicy": lambda d: d["spec"].update(cleanPodPolicy=""),
    "intranet": lambda d: d["spec"].update(intranet="podip"),
    "withGloo": lambda d: d["spec"].update(withGloo=3),
    "no worker": lambda d: d["spec"].pop("worker"),
    "no pods": lambda d: d["spec"]["ps"].update(replicas=0),
    "no template": lambda d: d["spec"]["ps"].pop("template"),
    "no containers": lambda d: d["spec"]["ps"]["template"]["spec"].update(containers=[]),
    "no image": lambda d: d["spec"]["ps"]["template"]["spec"]["containers"][0].pop("image"),
    "long name": lambda d: d["metadata"].update(name="x" * 52),
    "misspelled": lambda d: d["spec"].update(workers=d["spec"]["worker"]),
}


@pytest.mark.parametrize("what", BROKEN)
def test_the_definition_refuses(what: str, examples: dict[str, list[Document]], schema: Document) -> None:
    document = copy.deepcopy(by_kind(examples["wide-and-deep"])["PaddleJob"])
    BROKEN[what](document)
    assert refused(document, schema) != []


def structural_faults(schema: Document, path: str = "") -> Iterator[str]:
    """Kubernetes' rules for a structural schema: every place has a type (or int-or-string), and no forbidden keyword."""
    if "type" not in schema and not schema.get("x-kubernetes-int-or-string"):
        yield f"{path} has no type"
    for keyword in ("$ref", "definitions", "uniqueItems", "deprecated", "patternProperties", "dependencies"):
        if keyword in schema:
            yield f"{path} has {keyword}"
    if "properties" in schema and "additionalProperties" in schema:
        yield f"{path} has properties and additionalProperties"
    if path == ".metadata" and set(schema.get("properties", {})) - {"name", "generateName"}:
        yield "only metadata.name and generateName may be constrained"
    for name, below in schema.get("properties", {}).items():
        yield from structural_faults(below, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from structural_faults(schema[key], f"{path}.{key}")


def test_the_definition_is_structural(definition: Document, schema: Document) -> None:
    assert list(structural_faults(schema)) == []
    spec = definition["spec"]
    assert f"{spec['names']['plural']}.{spec['group']}" == definition["metadata"]["name"]


# The operator.


def test_the_operator_may_do_what_it_calls_in_the_jobs_namespace_and_no_more(examples: dict[str, list[Document]]) -> None:
    made = examples["wide-and-deep"]
    assert not [d for d in made if d["kind"].startswith("ClusterRole")]
    role = by_kind(made)["Role"]
    assert role["metadata"]["namespace"] == "paddle"
    granted = {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    # What its release v0.3.5 calls: it makes and deletes pods, Services, ConfigMaps, and changes none.
    group, read = "batch.paddlepaddle.org", {"get", "list", "watch"}
    assert granted == {
        (group, "paddlejobs"): {*read, "update"},
        (group, "paddlejobs/status"): {"update"},
        (group, "paddlejobs/finalizers"): {"update"},
        **{("", resource): {*read, "create", "delete"} for resource in ("pods", "services", "configmaps")},
        ("", "events"): {"create", "patch"},
    }
    volcano = by_kind(examples["volcano"])["Role"]["rules"]
    assert [rule["verbs"] for rule in volcano if rule["resources"] == ["podgroups"]] == [[*sorted(read), "create", "delete"]]


def test_the_operator_watches_that_namespace_alone(examples: dict[str, list[Document]]) -> None:
    deployment = by_kind(examples["wide-and-deep"])["Deployment"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert "--namespace=paddle" in container["args"]
    assert container["image"] == "registry.baidubce.com/paddlecloud/controller:v0.3.5"
    # Its coordination container has no security context: restricted namespaces would refuse every pod.
    assert "--initImage=" in container["args"]


def test_an_operator_that_is_there_already_is_left_alone(outputs: ClusterOutputs) -> None:
    settings = yaml.safe_load((EXAMPLES / "podip.yaml").read_text())
    settings["paddlejob"]["install_operator"] = False
    kinds = {d["kind"] for d in documents(TrainingJob.parse(settings), outputs, settings["image"])}
    assert "PaddleJob" in kinds
    assert not kinds & {"CustomResourceDefinition", "Deployment"}
