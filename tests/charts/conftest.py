"""What the chart tests share: a job from a few settings, its documents, and the outputs of a
cluster that was never deployed.
"""

from collections.abc import Callable
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

Documents = list[dict[str, Any]]


@pytest.fixture(scope="session")
def outputs() -> ClusterOutputs:
    return OUTPUTS


def _job(**settings: Any) -> TrainingJob:
    # Otherwise a command's program would be the folder where the tests run.
    shared = {
        "name": "words",
        "trainers": 3,
        "data": {"source": "s3://corpus/words"},
        "program": {"folder": "quick_start"},
    }
    return TrainingJob.parse(shared | settings)


@pytest.fixture(scope="session")
def job() -> Callable[..., TrainingJob]:
    """A function that makes a job of three trainers, overridden by the given settings."""
    return _job


@pytest.fixture(scope="session")
def make_documents() -> Callable[..., Documents]:
    """A function that makes the documents of such a job."""

    def make(**settings: Any) -> Documents:
        return documents(_job(**settings), OUTPUTS, "image")

    return make
