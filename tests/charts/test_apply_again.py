"""What a user does after a change of job.yaml: apply again. Kubernetes refuses to change some fields, so names have to."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob

pytestmark = pytest.mark.slow

Documents = list[dict[str, Any]]


def frozen(document: dict[str, Any]) -> dict[str, Any]:
    """The fields of a document that an API server refuses to change."""
    spec = document.get("spec", {})
    kind = document["kind"]
    if kind == "Job":
        mutable = {"activeDeadlineSeconds", "backoffLimit", "parallelism", "suspend", "ttlSecondsAfterFinished"}
        return {key: value for key, value in spec.items() if key not in mutable}
    if kind in ("PersistentVolume", "PersistentVolumeClaim"):
        # Sizes too: only a claim of a class that says so may grow.
        return dict(spec)
    if kind in ("Deployment", "DaemonSet"):
        return {"selector": spec["selector"]}
    if kind == "Service":
        return {"clusterIP": spec["clusterIP"]}
    if kind == "RoleBinding":
        return dict(document["roleRef"])
    if kind == "ConfigMap":
        return dict(document["data"])
    return {}


def refused(before: Documents, after: Documents) -> Iterator[str]:
    """Objects that both have under one name, and that an API server would refuse to change."""
    named = {(d["kind"], d["metadata"]["name"]): d for d in before}
    for document in after:
        old = named.get((document["kind"], document["metadata"]["name"]))
        if old is not None and frozen(old) != frozen(document):
            yield f"{document['kind']} {document['metadata']['name']}"


CHANGES: dict[str, dict[str, Any]] = {
    "more trainers": {"trainers": 5},
    "more passes": {"passes": 20},
    "another source": {"data": {"source": "s3://corpus/other"}},
    "a larger volume": {"volume": {"size": "1Ti"}},
    "another file system": {"volume": {"file_system_id": "fs-0aaaaaaaa", "access_point_id": "fsap-0bbbbbbbb"}},
    "nfs": {"volume": {"kind": "nfs"}},
    "mounted elsewhere": {"volume": {"mount_path": "/mnt/volume"}},
    "a longer time limit": {"limits": {"hours": 48}},
    "more memory": {"resources": {"memory": "4Gi"}},
    "other ports": {"ports": {"first": 9000}},
    "pod-list": {"discovery": "pod-list"},
    "volcano": {"gang": {"kind": "volcano"}},
    "other nodes": {"scheduling": {"node_selector": {"a": "b"}}},
    "an argument": {"arguments": ["--x"]},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_job_can_be_applied_over_the_old_one(change: str, made: Callable[..., Documents]) -> None:
    assert list(refused(made(), made(**CHANGES[change]))) == []


def test_a_change_of_the_data_is_a_new_training_job_too(made: Callable[..., Documents]) -> None:
    def jobs(found: Documents) -> set[str]:
        return {d["metadata"]["name"] for d in found if d["kind"] == "Job"}

    assert not jobs(made()) & jobs(made(data={"source": "s3://corpus/other"}))


def test_pinned_names_stay_and_are_the_users_to_delete(made: Callable[..., Documents]) -> None:
    def pinned(found: Documents) -> list[str]:
        return [d["metadata"]["name"] for d in found if d["kind"] != "ConfigMap"]

    before, after = made(pin_names=True), made(pin_names=True, passes=20)
    assert pinned(before) == pinned(after)
    assert list(refused(before, after)) == ["Job words"]


@pytest.mark.parametrize("volume", [{}, {"kind": "nfs"}])
def test_a_replaced_file_system_or_access_point_is_another_claim(
    volume: dict[str, Any], job: Callable[..., TrainingJob], outputs: ClusterOutputs, image: str
) -> None:
    replaced = outputs.model_copy(
        update={"file_system_id": "fs-0new", "access_point_id": "fsap-0new", "file_system_dns_name": "fs-0new.efs.x.y"}
    )
    before, after = (documents(job(volume=volume), one, image) for one in (outputs, replaced))
    assert list(refused(before, after)) == []
    (claim,) = {d["metadata"]["name"] for d in after if d["kind"] == "PersistentVolumeClaim"}
    assert claim not in {d["metadata"]["name"] for d in before}


def test_trainers_wait_for_the_data_of_their_own_data_job(made: Callable[..., Documents]) -> None:
    def named(found: Documents) -> list[str]:
        jobs = [d["spec"]["template"]["spec"]["containers"][0]["env"] for d in found if d["kind"] == "Job"]
        return [v["value"] for environment in jobs for v in environment if v["name"] == "PADDLE_NODE_DATA_JOB"]

    before, after = named(made()), named(made(data={"source": "s3://corpus/other"}))
    assert len(before) == len(after) == 2
    assert len({*before}) == len({*after}) == 1
    assert before != after
    assert named(made(data={"prepared": True}, program={"from": "volume"})) == []
