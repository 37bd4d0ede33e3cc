"""The names and labels of a job's objects, each spelled here and nowhere else.

Promises: names derived from a valid TrainingJob are valid and fit Kubernetes' limits, and two jobs never share one,
except the service accounts, which a namespace's jobs share.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from k8s_charts.spec import HASH_LENGTH, TrainingJob

Role = Literal["trainer", "data", "worker", "ps"]
"""trainer and data are pods of our Jobs; worker and ps are a PaddleJob's."""

TRAINER_ACCOUNT = "paddle-trainer"
DATA_ACCOUNT = "paddle-data"
"""The data job's service account: pod identity binds the right to read sources to it, so its name is the same for every job."""

PART_OF = {"app.kubernetes.io/part-of": "paddle-aws"}
INSTANCE = "app.kubernetes.io/instance"
"""Key of the label that holds the job's name."""
COMPONENT = "app.kubernetes.io/component"
"""Key of the label that holds a pod's role."""


def labels(job: TrainingJob, role: Role | None = None) -> dict[str, str]:
    """Kubernetes' recommended labels; with a role they select that role's pods of this job."""
    found = {**PART_OF, INSTANCE: job.name}
    return found if role is None else {**found, COMPONENT: role}


def volume(job: TrainingJob) -> str:
    """A PersistentVolume has no namespace: the dot, which no label holds, keeps a-b/c and a/b-c apart."""
    return f"{job.namespace}.{claim(job)}"


def claim(job: TrainingJob) -> str:
    """The claim on the job's volume: Kubernetes lets nobody change one, so another volume or size is another claim."""
    if job.volume.claim is not None:
        return job.volume.claim
    # Where the pods mount it is not the claim's affair.
    return immutable(job, job.name, job.volume.model_dump(mode="json", exclude={"mount_path", "folder", "claim"}))


def service(job: TrainingJob) -> str:
    """The trainers' headless Service; peer i is `<training job>-<i>.<service>`."""
    return job.name


def pod_list_account(job: TrainingJob) -> str:
    """The account, Role and RoleBinding of a job that asks the API server for its peers."""
    return f"{job.name}-pod-list"


def hashed(stem: str, content: Mapping[str, Any]) -> str:
    """`<stem>-<hash of the content>`: what is immutable gets a new name when it changes, and an equal one is the same object."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]}"


def immutable(job: TrainingJob, stem: str, template: Mapping[str, Any]) -> str:
    """The name of what Kubernetes refuses to change: a changed one is another object, unless the user pins the name."""
    return stem if job.pin_names else hashed(stem, template)
