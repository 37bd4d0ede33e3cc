"""The names and labels of a job's objects. Two jobs never share a name, but for the service accounts of a namespace."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.spec import TrainingJob
from k8s_charts.spec.job import HASH_LENGTH

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


_TOKEN = re.compile(r"\$\{Token\[(.*?)(\.\d+)?\]\}")
"""What a CDK app has in place of a value that only the deployment brings."""


def volume(job: TrainingJob, outputs: ClusterOutputs) -> str:
    """A PersistentVolume has no namespace: the dot, which no label holds, keeps a-b/c and a/b-c apart."""
    return f"{job.namespace}.{claim(job, outputs)}"


def claim(job: TrainingJob, outputs: ClusterOutputs) -> str:
    """The claim on the job's volume.

    Kubernetes lets nobody change a volume's source or a claim: another file system, access point or size is another
    claim. An id that only the deployment brings cannot be hashed before it: it stands in the name itself.
    """
    if job.volume.claim is not None:
        return job.volume.claim
    if job.pin_names:
        return job.name
    # Where the pods mount it is not the claim's affair.
    settings = job.volume.model_dump(mode="json", exclude={"mount_path", "folder", "claim"})
    source = outputs.volume_source(job.volume)
    late = [value for value in source.values() if _TOKEN.search(value)]
    known = {key: value for key, value in source.items() if value not in late}
    return "-".join([hashed(job.name, settings | known), *late])


def fingerprint(content: Mapping[str, Any]) -> str:
    """A short hash of the content, the same for the same content.

    A CDK app numbers its tokens in the order of their making: with the numbers, a change anywhere in the app would be one here.
    """
    text = _TOKEN.sub(r"\1", json.dumps(content, sort_keys=True, separators=(",", ":")))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def hashed(stem: str, content: Mapping[str, Any]) -> str:
    """`<stem>-<hash of the content>`: what is immutable gets a new name when it changes, and an equal one is the same object."""
    return f"{stem}-{fingerprint(content)}"
