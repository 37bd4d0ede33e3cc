"""A job's folder on the shared volume, from anywhere, without SSH: the inspection pod mounts it, the API server passes it on.

The pod runs the job's image as the job's user, mounts that folder alone, is deleted in the end, and ends by itself should this
program be killed. Where the cluster has forgotten the job, its job file describes the volume: what has to be made for the look
is removed again, unless the job has come back. The folder on the file system stays.
"""

import copy
import json
import secrets
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import yaml
from paddle_node.contract import DATA_MANIFEST

from operations.cluster.cluster import TRIES, ApiError, Cluster, Object
from operations.cluster.pod_words import states
from operations.cluster.volume_server import METHODS
from operations.errors import BadInput, Failed, OperationError
from operations.jobs.job_objects import INSTANCE, PADDLE_JOB, component, created, pods, runs, selector
from operations.jobs.removal import remove
from operations.jobs.submission import Submission

PORT = 8080
READY = 300.0
"""Seconds until the pod has to answer; pulling the image is part of it."""
STARTS = 10
"""How often the pod's program is asked until it listens, a moment after its container runs: for two minutes."""
BLOCK = 4 << 20
"""Bytes of one request."""
VOLUME = ("Namespace", "PersistentVolume", "PersistentVolumeClaim")
"""What has to be there for a pod that mounts the volume."""


class Missing(BadInput, FileNotFoundError):
    """There is no such file on the volume."""


class VolumeAccess:
    """Use as a context manager."""

    def __init__(
        self, cluster: Cluster, job: str, namespace: str, *, write: bool, described: Submission | Path | None = None
    ) -> None:
        """`described`: a submission, or its job file (default: job.yaml), which describes the volume of a forgotten job."""
        self._cluster, self._job, self._namespace, self._write, self._say = cluster, job, namespace, write, cluster.say
        self._described = described
        self._made: list[str] = []
        """What was made for the look, in order."""
        self._token = secrets.token_urlsafe(24)
        self._name = f"{job[:40]}-volume-{secrets.token_hex(4)}"

    def __enter__(self) -> Self:
        template = _template(self._cluster, self._job, self._namespace)
        try:
            if template is None:
                known = self._described
                described = known if isinstance(known, Submission) else self._read(known or Path("job.yaml"))
                template = described.template
                self._say(f"the cluster has no Job of {self._job} any more: its volume is mounted as the job file says")
                self._bring(described)
            pod = inspection_pod(template, self._job, self._name, self._token, self._write)
            pod["metadata"]["namespace"] = self._namespace
            self._cluster.apply(pod)
            self._until_ready()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()

    @property
    def where(self) -> str:
        """Whose folder it is, among all clusters'."""
        return f"{self._cluster.server} {self._namespace}/{self._job}"

    # What volume_server.Folder has.

    def files(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._ask("files", path))
        return found

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        return self._ask("read", path, offset=offset, size=size)

    def sums(self, path: str, offset: int, end: int, block: int, part: bool = False) -> list[str]:
        found: list[str] = json.loads(self._ask("sums", path, offset=offset, end=end, block=block, part=int(part)))
        return found

    def write(self, path: str, body: bytes, offset: int) -> None:
        self._ask("write", path, body, offset=offset)

    def commit(self, path: str, size: int) -> None:
        self._ask("commit", path, size=size)

    def set_aside(self, path: str) -> str:
        return str(json.loads(self._ask("set_aside", path)))

    @property
    def _path(self) -> str:
        return f"{pods(self._namespace)}/{self._name}"

    def _ask(self, action: str, path: str, body: bytes = b"", tries: int = TRIES, **numbers: int) -> bytes:
        # An address with a `?` in it: the API server passes the query on.
        place = f"{self._path}:{PORT}/proxy/{self._token}/{action}?{urlencode({'path': path, **numbers})}"
        headers = {"Content-Type": "application/octet-stream"}
        try:
            return self._cluster.request(METHODS[action], place, headers=headers, body=body or None, tries=tries)
        except ApiError as error:
            if error.status == 404:
                raise Missing(f"{self._job}/{path} is not on the volume: {error.message}") from None
            if error.status == 409:
                raise Failed(f"the volume refuses {self._job}/{path}: {error.message}") from None
            raise

    def _until_ready(self) -> None:
        deadline, told = time.monotonic() + READY, ""
        while True:
            pod = self._cluster.find(self._path)
            if pod is None:
                raise Failed(f"the inspection pod {self._name} was deleted")
            state = states(self._cluster, self._namespace, [pod])[0]
            if state.phase == "running":
                self._ask("files", DATA_MANIFEST, tries=STARTS)
                return
            if state.phase in ("failed", "done"):
                raise Failed(f"the inspection pod ended at once: {state.reason or 'see kubectl logs ' + self._name}")
            if state.phase == "waiting" and state.reason != told:
                told = state.reason
                self._say(f"the inspection pod waits: {told}")
            if time.monotonic() > deadline:
                raise Failed(f"the inspection pod does not start within {READY:.0f} s" + (f": {told}" if told else ""))
            time.sleep(0.3)

    def _read(self, file: Path) -> Submission:
        """Of a job that the cluster has forgotten. Raises BadInput where the file is missing, or is another job's."""
        gone = f"job {self._job} has no Job or PaddleJob ({PADDLE_JOB}) in namespace {self._namespace} any more"
        if not file.is_file():
            raise BadInput(f"{gone}, and there is no job.yaml here that describes its volume: name its job file instead")
        found = Submission.load(file, Path("outputs.json"), Path("image.json"))
        if (found.job.name, found.job.namespace) != (self._job, self._namespace):
            raise BadInput(f"{gone}, and {file} describes another one ({found.job.name}): name its job file instead")
        if found.deployed.missing:
            raise BadInput(f"{gone}; {found.deployed.missing}")
        return found

    def _bring(self, described: Submission) -> None:
        """Makes the namespace, the volume and the claim where they are not there."""
        for document in described.documents:
            if document["kind"] in VOLUME:
                path = self._cluster.path(document)
                if self._cluster.find(path) is None:
                    self._cluster.apply(document)
                    self._made += [path] if document["kind"] != "Namespace" else []

    def _remove(self) -> None:
        try:
            self._cluster.delete(self._path)
        except OperationError:
            self._say(f"the inspection pod {self._name} could not be deleted: it ends by itself within two minutes")
            return
        if self._made:
            # A claim on its way out lets no pod start: each is waited for, the pod that uses them first.
            remove(self._cluster, self._path)
            if _template(self._cluster, self._job, self._namespace) is None:
                for path in reversed(self._made):
                    remove(self._cluster, path)


def _template(cluster: Cluster, job: str, namespace: str) -> Object | None:
    """The pod template of the job's newest Job or PaddleJob on the cluster; None where none is left."""
    found = [run for run in runs(cluster, namespace, selector(job)) if component(run) != "reader"]
    spec: Object = max(found, key=created, default={"spec": {}})["spec"]
    template: Object | None = spec.get("worker", spec).get("template")
    return template


def inspection_pod(template: Object, job: str, name: str, token: str, write: bool) -> Object:
    """The job's own pod, with our program instead of its own, and only its volume."""
    spec = copy.deepcopy(template["spec"])
    original = spec["containers"][0]
    mount = next((m for m in original.get("volumeMounts", ()) if m["name"] == "job"), None)
    if mount is None:
        raise BadInput(f"job {job} has no volume: there is nothing to look at")
    here = Path(__file__)
    pod: Object = yaml.safe_load(here.with_name("inspection_pod.yaml").read_text(encoding="utf-8"))
    pod["metadata"]["name"] = name
    pod["metadata"]["labels"][INSTANCE] = job
    container = pod["spec"]["containers"][0]
    container |= {
        "image": original["image"],
        "imagePullPolicy": original.get("imagePullPolicy", "IfNotPresent"),
        "command": ["python3", "-c", here.with_name("volume_server.py").read_text(encoding="utf-8")],
        "args": [mount["mountPath"], token, str(PORT)],
        "volumeMounts": [{**mount, "readOnly": not write}],
    }
    # The job's folder may have to be made here as well; where the data job's source lies does not matter to this pod.
    makers = [
        {**maker, "args": maker["args"][:1], "resources": container["resources"]}
        for maker in spec.get("initContainers", ())
        if any(m["name"] == "job" for m in maker.get("volumeMounts", ()))
    ]
    kept = ("securityContext", "tolerations", "imagePullSecrets")
    pod["spec"] |= {field: spec[field] for field in kept if field in spec}
    pod["spec"]["volumes"] = [volume for volume in spec.get("volumes", ()) if volume["name"] == "job"]
    if makers:
        pod["spec"]["initContainers"] = makers
    return pod
