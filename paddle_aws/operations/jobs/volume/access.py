"""A job's folder on the shared volume, from anywhere, without SSH: the inspection pod mounts it,
the API server proxies it.

The pod runs the job's image as the job's user, mounts only that folder, is deleted at the end, and
exits on its own if this program is killed. If the cluster has forgotten the job, its job file
describes the volume.
"""

import copy
import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

import yaml
from paddle_node.contract import DATA_MANIFEST

from k8s_charts.pods.job_folder import MAKER
from paddle_aws.operations.cluster.cluster_api import TRIES, ApiError, ClusterApi, Object
from paddle_aws.operations.errors import BadInput, Failed, OperationError, Unreachable
from paddle_aws.operations.jobs.job_source import JobReference, JobSource
from paddle_aws.operations.jobs.objects import job_objects
from paddle_aws.operations.jobs.objects.object_fields import creation_time
from paddle_aws.operations.jobs.objects.paddle_job import PADDLE_JOB
from paddle_aws.operations.jobs.objects.pod_state import states
from paddle_aws.operations.jobs.submission import Submission
from paddle_aws.operations.jobs.volume.server import METHODS, Folder

PORT = 8080
READY_DEADLINE = 300.0
"""Seconds within which the pod has to answer, including the image pull."""
BLOCK = 4 << 20
"""Bytes per request."""
VOLUME = ("Namespace", "PersistentVolume", "PersistentVolumeClaim")
"""The kinds of objects that a pod needs to mount the volume."""


class MissingFile(BadInput, FileNotFoundError):
    """The volume has no such file."""


class VolumeAccess:
    """The methods of server.Folder, for the folder that an inspection pod serves."""

    def __init__(self, cluster: ClusterApi, job: str, namespace: str) -> None:
        self._cluster, self._job = cluster, job
        self.pod = f"{job[:40]}-volume-{secrets.token_hex(4)}"
        self.token = secrets.token_urlsafe(24)
        self.path = f"{job_objects.pods(namespace)}/{self.pod}"
        self.where = f"{cluster.server} {namespace}/{job}"
        """Identifies the folder's job across all clusters."""
        self.mount = ""
        """Where the job's pods see the folder."""

    def files(self, path: str) -> list[dict[str, Any]]:
        return list(json.loads(self.ask("files", path)))

    def steps(self, path: str, most: int) -> dict[str, Any]:
        return dict(json.loads(self.ask("steps", path, most=most)))

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        return self.ask("read", path, offset=offset, size=size)

    def sums(self, path: str, offset: int, end: int, block: int, part: bool = False) -> list[str]:
        answer = self.ask("sums", path, offset=offset, end=end, block=block, part=int(part))
        return list(json.loads(answer))

    def write(self, path: str, body: bytes, offset: int) -> None:
        self.ask("write", path, body, offset=offset)

    def commit(self, path: str, size: int) -> None:
        self.ask("commit", path, size=size)

    def set_aside(self, path: str) -> str:
        return str(json.loads(self.ask("set_aside", path)))

    def ask(
        self, action: str, path: str, body: bytes = b"", tries: int = TRIES, **numbers: int
    ) -> bytes:
        """Returns an answer of the pod's program. Raises Missing, or Failed if the file system
        refuses.
        """
        # The address has a `?` in it: the API server passes the query on.
        query = urlencode({"path": path, **numbers})
        place = f"{self.path}:{PORT}/proxy/{self.token}/{action}?{query}"
        headers = {"Content-Type": "application/octet-stream"}
        try:
            return self._cluster.request(
                METHODS[action], place, headers=headers, body=body or None, tries=tries
            ).data
        except ApiError as error:
            if error.status == 404:
                gone = f"{self._job}/{path} is not on the volume: {error.message}"
                raise MissingFile(gone) from None
            if error.status == 409:
                raise Failed(f"the volume refuses {self._job}/{path}: {error.message}") from None
            raise


Volume: TypeAlias = VolumeAccess | Folder
"""A job's folder."""


@contextmanager
def mount_volume(
    cluster: ClusterApi, job: JobReference | Submission, *, write: bool
) -> Iterator[VolumeAccess]:
    """Gives access to the job's folder on the volume.

    The volume of a submission is used in any case; that of a job file (default: job.yaml) only if
    the cluster does not know the job.
    """
    access = VolumeAccess(cluster, job.name, job.namespace)
    pod_template = None if isinstance(job, Submission) else _template(cluster, job)
    try:
        if pod_template is None:
            if not isinstance(job, Submission):
                job = _read(job)
                cluster.say(
                    f"the cluster has no Job of {job.name}: its volume is mounted as the job file "
                    "says"
                )
            pod_template = job_objects.template(job.training)
            for document in job.documents:
                if document["kind"] in VOLUME and cluster.find(cluster.path(document)) is None:
                    cluster.apply(document)
        pod = inspection_pod(pod_template, job.name, access.pod, access.token, write)
        pod["metadata"]["namespace"] = job.namespace
        access.mount = pod["spec"]["containers"][0]["args"][0]
        cluster.apply(pod)
        _wait_until_ready(cluster, access, job.namespace)
        yield access
    finally:
        try:
            cluster.delete(access.path)
        except OperationError:
            cluster.say(
                f"the inspection pod {access.pod} could not be deleted: it ends on its own "
                "within two minutes"
            )


def _wait_until_ready(cluster: ClusterApi, access: VolumeAccess, namespace: str) -> None:
    deadline, reported = time.monotonic() + READY_DEADLINE, ""
    while True:
        pod = cluster.find(access.path)
        if pod is None:
            raise Failed(f"the inspection pod {access.pod} was deleted")
        (state,), _ = states(cluster, namespace, [pod])
        if state.phase == "running":
            with suppress(Unreachable):  # The pod runs, and may not listen yet.
                access.ask("files", DATA_MANIFEST, tries=1)
                return
        if state.phase in ("failed", "done"):
            why = state.reason or f"see kubectl logs {access.pod}"
            raise Failed(f"the inspection pod ended at once: {why}")
        if state.phase == "waiting" and state.reason != reported:
            reported = state.reason
            cluster.say(f"the inspection pod waits: {reported}")
        if time.monotonic() > deadline:
            why = f": {reported}" if reported else ""
            raise Failed(f"the inspection pod does not start within {READY_DEADLINE:.0f} s{why}")
        time.sleep(0.3)


def _read(job: JobReference) -> Submission:
    """Loads a job that the cluster does not know. Raises BadInput: no file, another job's."""
    file = job.file or Path("job.yaml")
    gone = f"job {job.name} has no Job or PaddleJob ({PADDLE_JOB}) in namespace {job.namespace}"
    if not file.is_file():
        raise BadInput(
            f"{gone}, and there is no job.yaml here that describes its volume: name its job file "
            "instead"
        )
    submission = Submission.load(JobSource(file), Path("outputs.json"), Path("image.json"))
    if (submission.name, submission.namespace) != (job.name, job.namespace):
        raise BadInput(
            f"{gone}, and {file} describes another one ({submission.name}): name its job file "
            "instead"
        )
    if submission.deployed.missing:
        raise BadInput(f"{gone}; {submission.deployed.missing}")
    return submission


def _template(cluster: ClusterApi, job: JobReference) -> Object | None:
    """Returns the pod template of the job's newest run on the cluster; None: none is left."""
    runs = job_objects.runs(cluster, job.namespace, job_objects.selector(job.name))
    kept = [run for run in runs if job_objects.component(run) not in ("reader", "environment")]
    return job_objects.template(max(kept, key=creation_time)) if kept else None


def inspection_pod(job_template: Object, job: str, name: str, token: str, write: bool) -> Object:
    """Returns the job's own pod, with our program instead of its own, and only its volume."""
    spec = copy.deepcopy(job_template["spec"])
    original = spec["containers"][0]
    mount = next((m for m in original.get("volumeMounts", ()) if m["name"] == "job"), None)
    if mount is None:
        raise BadInput(f"job {job} has no volume: there is nothing to look at")
    here = Path(__file__)
    pod: Object = yaml.safe_load(here.with_name("inspection_pod.yaml").read_text(encoding="utf-8"))
    pod["metadata"]["name"] = name
    pod["metadata"]["labels"][job_objects.INSTANCE] = job
    container = pod["spec"]["containers"][0]
    container |= {
        "image": original["image"],
        "imagePullPolicy": original.get("imagePullPolicy", "IfNotPresent"),
        "command": ["python3", "-c", here.with_name("server.py").read_text(encoding="utf-8")],
        # Whoever may read the pod's description must not learn the token.
        "args": [mount["mountPath"], hashlib.sha256(token.encode()).hexdigest(), str(PORT)],
        "volumeMounts": [{**mount, "readOnly": not write}],
    }
    # This pod, too, may have to make the job's folder; where the data job's source is does not
    # matter to it.
    makers = [maker for maker in spec.get("initContainers", ()) if maker["name"] == MAKER]
    changed = {"resources": container["resources"]}
    makers = [{**maker, "args": maker["args"][:1], **changed} for maker in makers]
    kept = ("securityContext", "tolerations", "imagePullSecrets")
    pod["spec"] |= {field: spec[field] for field in kept if field in spec}
    pod["spec"]["volumes"] = [
        volume for volume in spec.get("volumes", ()) if volume["name"] == "job"
    ]
    if makers:
        pod["spec"]["initContainers"] = makers
    return pod
