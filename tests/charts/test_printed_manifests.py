"""Compares our output, field by field, with the manifests that the tutorials and the PaddleJob
guide print.

Every field of theirs is in ours with the same value, or is listed with the reason why not. Every
field of ours that theirs lack is covered by a listed reason too (*_differences.yaml). A reason that
is no longer needed fails as well.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
IMAGE = "image@sha256:" + "0" * 64
EXAMPLES = HERE.parents[1] / "examples"
TUTORIALS = {"kubernetes-on-aws": "000", "distributed-training": "003", "aws-recommendation": "004"}
"""Our job files, and the tutorials' manifests for them."""
Document = dict[str, Any]

# Lists whose items have a name: compared by name, in any order.
_NAMED = {"env", "ports", "volumeMounts", "volumes", "containers"}
# Compared as a whole: their inner structure is ours alone.
_WHOLE = {"command", "securityContext", "resources", "livenessProbe", "startupProbe",
         "topologySpreadConstraints", "tolerations",
         "podFailurePolicy", "claimRef", "accessModes", "mountOptions"}  # fmt: skip


def fields(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    key = path.rpartition("/")[2]
    if key in _NAMED and isinstance(value, list):
        for item in value:
            rest = {k: v for k, v in item.items() if k != "name"}
            if key == "env":
                yield f"{path}/{item['name']}", rest.get("value", rest.get("valueFrom"))
            else:
                yield from fields(rest, f"{path}/{item['name']}")
    elif isinstance(value, dict) and key not in _WHOLE:
        for name, below in value.items():
            yield from fields(below, f"{path}/{name}")
    else:
        yield path, value


def unexplained(
    kind: str, printed: Document, document: Document, reasons: Document, used: set[str]
) -> Iterator[str]:
    """Yields the fields that differ without a named reason. Adds the reasons that were needed to
    `used`.
    """
    theirs, ours = dict(fields(printed, kind)), dict(fields(document, kind))
    for path, value in theirs.items():
        if path in ours and ours[path] == value:
            continue
        reason = next(
            (pattern for pattern in reasons["different"] if re.fullmatch(pattern, path)), ""
        )
        expected = reasons["different"][reason]["ours"] if reason else None
        used.add(reason)
        actual = ours.get(path, "ABSENT")
        if not reason or expected not in ("ANYTHING", actual):
            yield f"{path} is {value!r} in print, {actual!r} in ours, and named as {expected!r}"
    for path in ours.keys() - theirs.keys():
        reason = next((pattern for pattern in reasons["added"] if re.fullmatch(pattern, path)), "")
        used.add(reason)
        if not reason:
            yield f"{path} is {ours[path]!r} in ours, and no reason is named"


def by_kind(documents: list[Document]) -> dict[str, Document]:
    kinds: dict[str, Document] = {}
    for document in documents:
        kind = document["kind"]
        if kind == "Job":
            container = document["spec"]["template"]["spec"]["containers"][0]
            kind = "Job:data" if "data" in container["name"] else "Job:train"
            # One name for each Job's container, so that its fields can be compared.
            container["name"] = "paddle-data" if kind == "Job:data" else "trainer"
        kinds[kind] = document
    return kinds


@pytest.mark.parametrize(
    ("examples", "printed"),
    [
        (
            {f"tutorials/{ours}": f"tutorials/{theirs}.yaml" for ours, theirs in TUTORIALS.items()},
            "tutorial",
        ),
        (
            {
                f"paddlejob/{file.stem}": f"paddlejob/{file.name}"
                for file in (HERE / "paddlejob").glob("*.yaml")
            },
            "guide",
        ),
    ],
    ids=["tutorials", "guide"],
)
def test_every_field_is_as_printed_or_has_a_reason(
    examples: dict[str, str], printed: str, outputs: ClusterOutputs
) -> None:
    reasons = yaml.safe_load((HERE / f"{printed}_differences.yaml").read_text())
    used = {""}
    for example, file in examples.items():
        job = TrainingJob.load(EXAMPLES / f"{example}.yaml")
        our_documents = by_kind(documents(job, outputs, job.image or IMAGE))
        for kind, document in by_kind(list(yaml.safe_load_all((HERE / file).read_text()))).items():
            assert list(unexplained(kind, document, our_documents[kind], reasons, used)) == [], file
    assert {*reasons["different"], *reasons["added"]} - used == set(), (
        "reasons that nothing in print needs any more"
    )
