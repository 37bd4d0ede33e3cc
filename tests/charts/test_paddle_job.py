"""PaddleJobs: the kind's definition, and the operator's rights."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples" / "paddlejob"
Document = dict[str, Any]


def by_kind(found: list[Document]) -> dict[str, Document]:
    return {document["kind"]: document for document in found}


@pytest.fixture(scope="module")
def examples(outputs: ClusterOutputs) -> dict[str, dict[str, Document]]:
    made = {}
    for path in sorted(EXAMPLES.glob("*.yaml")):
        job = TrainingJob.load(path)
        made[path.stem] = by_kind(documents(job, outputs, job.image or "registry.example/paddle:1"))
    return made


def refused(value: Any, schema: Document, path: str = "") -> list[str]:
    """What an API server would refuse or drop by a structural schema."""
    if schema.get("x-kubernetes-preserve-unknown-fields") and "properties" not in schema:
        return []
    faults = [f"{path} lacks {field}" for field in schema.get("required", ()) if isinstance(value, dict) and field not in value]
    if "enum" in schema and value not in schema["enum"]:
        faults.append(f"{path} is {value}")
    if isinstance(value, dict):
        for key, below in value.items():
            known = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            if known is not None:
                faults += refused(below, known, f"{path}.{key}")
            elif not schema.get("x-kubernetes-preserve-unknown-fields") and path != ".metadata":
                faults.append(f"unknown field {path}.{key}")
    elif isinstance(value, list):
        faults += [fault for item in value for fault in refused(item, schema.get("items", {}), f"{path}[]")]
    return faults


def test_every_example_fits_the_definition_and_the_guides_own_but_for_its_slip(examples: dict[str, dict[str, Document]]) -> None:
    definition = examples["wide-and-deep"]["CustomResourceDefinition"]
    assert f"{definition['spec']['names']['plural']}.{definition['spec']['group']}" == definition["metadata"]["name"]
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for made in examples.values():
        assert refused(made["PaddleJob"], schema) == []
    for path in (Path(__file__).parent / "paddlejob").glob("*.yaml"):
        faults = refused(by_kind(list(yaml.safe_load_all(path.read_text())))["PaddleJob"], schema)
        assert faults == (["unknown field .spec.cleanPolicy"] if path.stem == "pv-pvc" else [])


def test_the_operator_may_do_what_it_calls_in_the_jobs_namespace_and_no_more(examples: dict[str, dict[str, Document]]) -> None:
    made = examples["wide-and-deep"]
    assert not [kind for kind in made if kind.startswith("ClusterRole")]
    role = made["Role"]
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
    volcano = examples["volcano"]["Role"]["rules"]
    assert [rule["verbs"] for rule in volcano if rule["resources"] == ["podgroups"]] == [[*sorted(read), "create", "delete"]]


def test_an_operator_that_is_there_already_is_left_alone(outputs: ClusterOutputs) -> None:
    settings = yaml.safe_load((EXAMPLES / "podip.yaml").read_text())
    settings["paddlejob"]["install_operator"] = False
    kinds = {d["kind"] for d in documents(TrainingJob.parse(settings), outputs, settings["image"])}
    assert "PaddleJob" in kinds
    assert not kinds & {"CustomResourceDefinition", "Deployment"}
