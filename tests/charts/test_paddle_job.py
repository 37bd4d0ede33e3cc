"""PaddleJobs: the kind's definition, and the operator's rights."""

from pathlib import Path
from typing import Any

import jsonschema
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


def closed(schema: Any) -> Any:
    """The schema as an API server takes it, which drops what a structural schema does not name."""
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    unknown = found.get("x-kubernetes-preserve-unknown-fields") or not isinstance(found.get("properties"), dict)
    return found if unknown else {**found, "additionalProperties": False}


def test_every_example_fits_the_definition_and_the_guides_own_but_for_its_slip(examples: dict[str, dict[str, Document]]) -> None:
    definition = examples["wide-and-deep"]["CustomResourceDefinition"]
    assert f"{definition['spec']['names']['plural']}.{definition['spec']['group']}" == definition["metadata"]["name"]
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    validator = jsonschema.Draft202012Validator(closed({**schema, "properties": {**schema["properties"], "metadata": {}}}))
    for made in examples.values():
        validator.validate(made["PaddleJob"])
    for path in (Path(__file__).parent / "paddlejob").glob("*.yaml"):
        faults = [
            fault.message for fault in validator.iter_errors(by_kind(list(yaml.safe_load_all(path.read_text())))["PaddleJob"])
        ]
        slip = ["Additional properties are not allowed ('cleanPolicy' was unexpected)"]
        assert faults == (slip if path.stem == "pv-pvc" else [])


def test_an_operator_that_is_there_already_is_left_alone(outputs: ClusterOutputs) -> None:
    settings = yaml.safe_load((EXAMPLES / "podip.yaml").read_text())
    settings["paddlejob"]["install_operator"] = False
    kinds = {d["kind"] for d in documents(TrainingJob.parse(settings), outputs, settings["image"])}
    assert "PaddleJob" in kinds
    assert not kinds & {"CustomResourceDefinition", "Deployment"}
