"""What the chart tests share: a job from a few settings, its documents, and the outputs of a cluster that was never deployed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob

OUTPUTS = ClusterOutputs(
    file_system_id="fs-0123456789abcdef0",
    access_point_id="fsap-0fedcba9876543210",
    bucket_name="paddle-storage-bucket",
    file_system_dns_name="fs-0123456789abcdef0.efs.eu-central-1.amazonaws.com",
    kubernetes_version="1.35",
)
IMAGE = "000000000000.dkr.ecr.eu-central-1.amazonaws.com/paddle@sha256:" + "ab" * 32

Documents = list[dict[str, Any]]


@pytest.fixture(scope="session")
def project() -> Path:
    return Path(__file__).parents[2]


@pytest.fixture(scope="session")
def outputs() -> ClusterOutputs:
    return OUTPUTS


@pytest.fixture(scope="session")
def image() -> str:
    return IMAGE


def _job(**settings: Any) -> TrainingJob:
    return TrainingJob.parse({"name": "words", "trainers": 3, "data": {"source": "s3://corpus/words"}} | settings)


@pytest.fixture(scope="session")
def job() -> Callable[..., TrainingJob]:
    """A job of three trainers, with the given settings put over it."""
    return _job


@pytest.fixture(scope="session")
def made() -> Callable[..., Documents]:
    """The documents of such a job."""

    def make(**settings: Any) -> Documents:
        return documents(_job(**settings), OUTPUTS, IMAGE)

    return make


@pytest.fixture(scope="session")
def only() -> Callable[..., dict[str, Any]]:
    """The one document of a kind, with `labels` as its labels where given."""

    def find(found: Documents, kind: str, **labels: str) -> dict[str, Any]:
        wanted = {f"app.kubernetes.io/{key}": value for key, value in labels.items()}
        matching = [d for d in found if d["kind"] == kind and wanted.items() <= d["metadata"].get("labels", {}).items()]
        assert len(matching) == 1, f"{len(matching)} documents of kind {kind}"
        return matching[0]

    return find


# Lists whose items have a name are compared by it, in any order.
_NAMED = {"env", "ports", "volumeMounts", "volumes", "containers"}
# Compared as a whole: their inner structure is ours alone.
_WHOLE = {"command", "securityContext", "resources", "livenessProbe", "startupProbe", "topologySpreadConstraints", "tolerations",
         "podFailurePolicy", "claimRef", "accessModes", "mountOptions"}  # fmt: skip


def _fields(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    key = path.rpartition("/")[2]
    if key in _NAMED and isinstance(value, list):
        for item in value:
            rest = {k: v for k, v in item.items() if k != "name"}
            if key == "env":
                yield f"{path}/{item['name']}", rest.get("value", rest.get("valueFrom"))
            else:
                yield from _fields(rest, f"{path}/{item['name']}")
    elif isinstance(value, dict) and key not in _WHOLE:
        for name, below in value.items():
            yield from _fields(below, f"{path}/{name}")
    else:
        yield path, value


def _compare(
    kind: str,
    printed: dict[str, Any],
    made: dict[str, Any],
    different: dict[str, tuple[Any, str]],
    added: dict[str, str],
    used: set[str],
) -> list[str]:
    theirs, ours = dict(_fields(printed, kind)), dict(_fields(made, kind))
    faults = []
    for path, value in theirs.items():
        if path in ours and ours[path] == value:
            continue
        reason = next((pattern for pattern in different if re.fullmatch(pattern, path)), None)
        if reason is None:
            faults.append(f"{path} is {value!r} in the tutorial and {ours.get(path, 'absent')!r} in ours")
            continue
        used.add(reason)
        wanted = different[reason][0]
        if wanted == "ABSENT" and path in ours:
            faults.append(f"{path} is named as absent, and is {ours[path]!r}")
        if wanted not in ("ABSENT", "ANYTHING") and ours.get(path) != wanted:
            faults.append(f"{path} is {ours.get(path)!r}, and named as {wanted!r}")
    for path, value in ours.items():
        if path not in theirs:
            reason = next((pattern for pattern in added if re.fullmatch(pattern, path)), None)
            if reason is None:
                faults.append(f"{path} is {value!r} in ours, and no reason is named")
            else:
                used.add(reason)
    return faults


@pytest.fixture(scope="session")
def compare() -> Callable[..., list[str]]:
    """(kind, printed document, ours, `different`, `added`, `used`) -> the fields that differ without a named reason.

    `different` maps the path of a printed field to (our value, or ABSENT, or ANYTHING; why), `added` that of a field of
    ours that the printed document lacks to the reason. Reasons that were needed are added to `used`.
    """
    return _compare
