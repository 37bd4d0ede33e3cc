"""After a change of job.yaml a user applies again. Kubernetes refuses to change some fields, so
names have to change instead.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob

pytestmark = pytest.mark.slow

Documents = list[dict[str, Any]]


CHANGEABLE = {
    "activeDeadlineSeconds",
    "backoffLimit",
    "parallelism",
    "suspend",
    "ttlSecondsAfterFinished",
}
"""Fields of a Job's spec that an API server lets change."""


def frozen(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that an API server refuses to change. A claim's size is one: our storage
    class allows no growth.
    """
    fields = document.get("data" if document["kind"] == "ConfigMap" else "spec", {})
    kinds = ("Job", "PersistentVolume", "PersistentVolumeClaim", "ConfigMap")
    return (
        {key: value for key, value in fields.items() if key not in CHANGEABLE}
        if document["kind"] in kinds
        else {}
    )


def refused(before: Documents, after: Documents) -> Iterator[str]:
    """Yields the objects that have the same name in both, and that an API server would refuse to
    change.
    """
    named = {(d["kind"], d["metadata"]["name"]): d for d in before}
    for document in after:
        old = named.get((document["kind"], document["metadata"]["name"]))
        if old is not None and frozen(old) != frozen(document):
            yield f"{document['kind']} {document['metadata']['name']}"


CHANGES = yaml.safe_load(Path(__file__).with_name("changes.yaml").read_text())


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_changed_job_can_be_applied_over_the_old_one(
    change: dict[str, Any], make_documents: Callable[..., Documents]
) -> None:
    assert list(refused(make_documents(), make_documents(**change))) == []


@pytest.mark.parametrize("volume", [{}, {"kind": "nfs"}])
def test_a_replaced_file_system_or_access_point_is_another_claim(
    volume: dict[str, Any], job: Callable[..., TrainingJob], outputs: ClusterOutputs
) -> None:
    replaced = outputs.model_copy(
        update={
            "file_system_id": "fs-0new",
            "access_point_id": "fsap-0new",
            "file_system_dns_name": "fs-0new.efs.x.y",
        }
    )
    before, after = (
        documents(job(volume=volume), cluster, "image") for cluster in (outputs, replaced)
    )
    assert list(refused(before, after)) == []
    (claim,) = {d["metadata"]["name"] for d in after if d["kind"] == "PersistentVolumeClaim"}
    assert claim not in {d["metadata"]["name"] for d in before}


def test_changed_data_is_a_new_training_job_whose_trainers_wait_for_it(
    make_documents: Callable[..., Documents],
) -> None:
    def jobs(manifests: Documents) -> tuple[set[str], set[str]]:
        """Returns the names of the Jobs, and of the data job that they name to their pods."""
        jobs = [d for d in manifests if d["kind"] == "Job"]
        variables = [
            v for job in jobs for v in job["spec"]["template"]["spec"]["containers"][0]["env"]
        ]
        named = [v["value"] for v in variables if v["name"] == "PADDLE_NODE_DATA_JOB"]
        assert len(named) in (0, 2)
        return {job["metadata"]["name"] for job in jobs}, set(named)

    (names, data_names), (other_names, other_data_names) = (
        jobs(make_documents()),
        jobs(make_documents(data={"source": "s3://corpus/other"})),
    )
    assert (
        not names & other_names
        and not data_names & other_data_names
        and len(data_names) == len(other_data_names) == 1
    )
    assert jobs(make_documents(data={"prepared": True}, program={"from": "volume"}))[1] == set()
