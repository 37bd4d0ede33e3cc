"""The names and labels of a job's objects. Two jobs never share a name, except for the service
accounts of a namespace.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from paddle_node.contract import PROJECT, Label

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.spec import TrainingJob
from k8s_charts.spec.job_settings import HASH_LENGTH
from paddle_settings.shared_names import DATA_ACCOUNT as DATA_ACCOUNT

Role = Literal["trainer", "data", "environment", "worker", "ps"]
"""trainer, data and environment are pods of our Jobs; worker and ps are a PaddleJob's."""

TRAINER_ACCOUNT = "paddle-trainer"

PART_OF = {Label.PART_OF.value: PROJECT}
INSTANCE = Label.INSTANCE.value
COMPONENT = Label.COMPONENT.value


def labels(job: TrainingJob, role: Role | None = None) -> dict[str, str]:
    """Returns Kubernetes' recommended labels. With a role, they select this job's pods of that
    role.
    """
    all_pods = {**PART_OF, INSTANCE: job.name}
    return all_pods if role is None else {**all_pods, COMPONENT: role}


_TOKEN = re.compile(r"\$\{Token\[(.*?)(\.\d+)?\]\}")
"""A CDK app's placeholder for a value that is known only at deployment."""


def volume(job: TrainingJob, outputs: ClusterOutputs) -> str:
    """Names the PersistentVolume, which has no namespace. The dot, not allowed in labels, keeps
    a-b/c and a/b-c apart.
    """
    return f"{job.namespace}.{claim(job, outputs)}"


def claim(job: TrainingJob, outputs: ClusterOutputs) -> str:
    """Returns the name of the claim on the job's volume.

    Kubernetes allows no change of a volume's source or of a claim, so another file system, access
    point or size gets another claim. An id that is known only at deployment cannot be hashed
    before: the name contains the id itself.
    """
    if job.volume.claim is not None:
        return job.volume.claim
    if job.pin_names:
        return job.name
    # The claim does not depend on where the pods mount it.
    settings = job.volume.model_dump(mode="json", exclude={"mount_path", "folder", "claim"})
    source = outputs.volume_source(job.volume)
    late = [value for value in source.values() if _TOKEN.search(value)]
    at_synth = {key: value for key, value in source.items() if value not in late}
    return "-".join([hashed_name(job.name, settings | at_synth), *late])


def fingerprint(content: Mapping[str, Any]) -> str:
    """Returns a short hash of the content, the same for the same content.

    Token numbers are left out: a CDK app counts tokens as it creates them, so any change in the app
    would change the hash.
    """
    return _digest(content)[:HASH_LENGTH]


def _digest(content: Mapping[str, Any]) -> str:
    text = _TOKEN.sub(r"\1", json.dumps(content, sort_keys=True, separators=(",", ":")))
    return hashlib.sha256(text.encode()).hexdigest()


def environment(job: TrainingJob, image: str) -> str | None:
    """Returns the digest that names the environment of the program's requirements: all jobs that
    ask for the same share it. None if the job builds none.
    """
    program = job.program
    if not job.builds_environment:
        return None
    return _digest(
        {
            "requirements": sorted(program.requirements),
            # With a Secret, no package's code runs during the build, and only jobs with the same
            # Secret share the archive.
            "index": program.index and [program.index.url, program.index.secret],
            "wheels": program.wheels,
            "paddle": job.chosen_paddle,
            "image": image,
        }
    )


def hashed_name(stem: str, content: Mapping[str, Any]) -> str:
    """Returns `<stem>-<hash of the content>`: a changed immutable object gets a new name, and an
    equal one is the same object.
    """
    return f"{stem}-{fingerprint(content)}"
