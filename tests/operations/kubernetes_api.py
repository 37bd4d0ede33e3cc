"""The tests' Kubernetes API, served over HTTP from memory, for what the commands and kubectl ask.

What is real: server-side apply, finalizers, which a test removes, owners, logs that can be
followed, a pod's proxy. Tests inject faults: any status, answers cut in the middle, and whatever
else they want to happen at that moment.

Limits: no controllers (see job_controller.py), no field ownership, no validation (tests/charts has
it), no admission, and no RBAC except for a list of accepted tokens.
"""

import copy
import json
import re
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import urllib3
import yaml
from http_server import Server

Object = dict[str, Any]
KINDS = {
    "/api/v1": "Namespace Node PersistentVolume PersistentVolumeClaim ServiceAccount Service "
    "ConfigMap ResourceQuota LimitRange Pod Event",
    "/apis/apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "/apis/admissionregistration.k8s.io/v1": "ValidatingAdmissionPolicy "
    "ValidatingAdmissionPolicyBinding",
    "/apis/apps/v1": "DaemonSet Deployment",
    "/apis/batch/v1": "Job",
    "/apis/networking.k8s.io/v1": "NetworkPolicy",
    "/apis/policy/v1": "PodDisruptionBudget",
    "/apis/rbac.authorization.k8s.io/v1": "ClusterRole ClusterRoleBinding Role RoleBinding",
}
ADMISSION = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
CLUSTER_WIDE = (
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Namespace",
    "Node",
    "PersistentVolume",
    *ADMISSION,
)
BELOW = re.compile(
    r"(?P<base>/api/v1|/apis/[^/]+/[^/]+)(/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)(/(?P<name>[^/]+))?"
)
OF_POD = re.compile(r"(?P<pod>.+/pods/[^/:]+)(:\d+)?/(?P<what>log|proxy)(?P<path>/.*)?")


def kubeconfig(server: str, user: Object, name: str = "double", **cluster: str) -> str:
    """The text of a kubeconfig with one cluster."""
    kinds = {
        "clusters": {"cluster": {"server": server, **cluster}},
        "users": {"user": user},
        "contexts": {"context": {"cluster": name, "user": name}},
    }
    return yaml.safe_dump(
        {kind: [{"name": name, **entry}] for kind, entry in kinds.items()}
        | {"current-context": name}
    )


def plural(kind: str) -> str:
    return (
        f"{kind.lower().removesuffix('y')}ies"
        if kind.endswith("cy")
        else f"{kind.lower()}{'es' * kind.endswith('s') or 's'}"
    )


@dataclass
class Fault:
    """After the first `skip` matching requests, the next `times` get `status`, or an answer cut
    after `cut` bytes.

    Each time, `then` is called first.
    """

    path: str
    method: str = ""
    status: int = 0
    message: str = ""
    cut: int | None = None
    times: int = 1
    skip: int = 0
    then: Callable[[], object] = lambda: None


class Refusal(Exception):
    """A refusal that is answered with a Status object: code, reason, message."""


@dataclass
class Log:
    """What a container wrote: (time, line)."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    ended: bool = False


class KubernetesApi(Server):
    """The API server and what it holds: objects by path, pods' logs and proxies by name."""

    def __init__(self) -> None:
        self.kinds = dict(KINDS)
        self.version = 1
        self.objects: dict[str, Object] = {}
        self.faults: list[Fault] = []
        self.lock = threading.Lock()
        self.tokens: set[str] | None = None
        self.requests: list[tuple[str, str]] = []
        self.logs: defaultdict[str, Log] = defaultdict(Log)
        self.proxies: dict[str, str] = {}
        self.created: Callable[[Object], None] = lambda document: None
        """Called with each newly applied object; here a test may play a controller."""
        self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "paddle"}})

    def all(self, kinds: str) -> list[Object]:
        """The objects whose kind has this plural."""
        return [
            document
            for path, document in list(self.objects.items())
            if path.split("/")[-2] == kinds
        ]

    def of(self, component: str, kinds: str = "jobs") -> list[Object]:
        """The Jobs or pods of a component of our jobs."""
        return [
            o
            for o in self.all(kinds)
            if o["metadata"].get("labels", {}).get("app.kubernetes.io/component") == component
        ]

    def path(self, document: Object) -> str:
        version, kind, metadata = document["apiVersion"], document["kind"], document["metadata"]
        place = "" if kind in CLUSTER_WIDE else f"/namespaces/{metadata['namespace']}"
        base = f"/{'apis' if '/' in version else 'api'}/{version}"
        return f"{base}{place}/{plural(kind)}/{metadata['name']}"

    def put(self, document: Object) -> Object:
        """Creates or changes an object as a controller would, including its status."""
        path = self.path(document)
        metadata = self.objects.get(path, {"metadata": {}})["metadata"]
        given = {
            "uid": metadata.get("uid") or str(uuid.uuid4()),
            "creationTimestamp": metadata.get("creationTimestamp") or now(),
        }
        self.objects[path] = merged({"metadata": given}, document)
        return self.objects[path]

    def apply(self, path: str, patch: Object) -> Object:
        """Server-side apply by a manager that owns all fields."""
        if path in self.objects:
            self.objects[path] = merged(self.objects[path], patch)
        else:
            self.created(copy.deepcopy(self.put(patch)))
        return self.objects[path]

    def remove(self, document: Object, finalizers: bool = True) -> None:
        """Deletes an object and what it owns; with `finalizers`, one that has some stays until
        their controllers are done.
        """
        metadata = document["metadata"]
        if finalizers and metadata.get("finalizers"):
            metadata.setdefault("deletionTimestamp", now())
            return
        self.objects.pop(self.path(document), None)
        if document["kind"] == "Pod":
            self.logs[metadata["name"]].ended = True
        for other in list(self.objects.values()):
            if any(
                owner["uid"] == metadata["uid"]
                for owner in other["metadata"].get("ownerReferences", ())
            ):
                self.remove(other)

    def say(self, pod: str, line: str) -> None:
        self.logs[pod].lines.append((now("%Y-%m-%dT%H:%M:%S.%f000Z"), line))

    def kubeconfig(self, path: Path, user: Object | None = None) -> Path:
        """Writes a kubeconfig file for this cluster. Returns its path."""
        path.write_text(kubeconfig(self.url, user or {"token": "good"}))
        return path


def now(form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    return datetime.now(UTC).strftime(form)


def merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {name: merged(old.get(name), value) for name, value in new.items()}
    return copy.deepcopy(new)


class _Handler(BaseHTTPRequestHandler):
    api: KubernetesApi
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.query = {
            name: values[0]
            for name, values in parse_qs(parts.query, keep_blank_values=True).items()
        }
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.api.requests.append((self.command, self.path))
        fault = self._fault()
        self.cut = fault.cut
        try:
            fault.then()
            if fault.status:
                raise Refusal(fault.status, "Injected", fault.message or f"injected {fault.status}")
            if (
                self.api.tokens is not None
                and self.headers.get("Authorization", "")[7:] not in self.api.tokens
            ):
                raise Refusal(401, "Unauthorized", "Unauthorized")
            self._answer(unquote(parts.path).rstrip("/"))
        except Refusal as refusal:
            code, reason, message = refusal.args
            status = {"status": "Failure", "reason": reason, "message": message, "code": code}
            self._json({"kind": "Status", "apiVersion": "v1", "metadata": {}, **status}, code)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _fault(self) -> Fault:
        with self.api.lock:
            for fault in self.api.faults:
                if (
                    fault.times
                    and re.search(fault.path, self.path)
                    and fault.method in ("", self.command)
                ):
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    return fault
        return Fault("")

    def _json(self, document: Object, code: int = 200) -> None:
        headers = {
            "Content-Type": "application/json",
            **({"Retry-After": "0"} if code == 429 else {}),
        }
        self._bytes(code, json.dumps(document).encode(), headers)

    def _bytes(self, code: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = self.close_connection or self.cut is not None
        self.wfile.write(body[: self.cut])
        self.wfile.flush()

    def _discover(self, path: str) -> Object | None:
        """Returns what kinds the server serves; None: the path asks for something else."""
        kinds = self.api.kinds
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/version":
            return {"gitVersion": "v1.35.0"}
        if path == "/apis":
            groups = []
            for group, version in (base.split("/")[2:] for base in kinds if base != "/api/v1"):
                served = {"groupVersion": f"{group}/{version}", "version": version}
                groups.append({"name": group, "versions": [served], "preferredVersion": served})
            return {"kind": "APIGroupList", "groups": groups}
        if path in kinds:
            verbs = ["delete", "get", "list", "patch"]
            listed = [
                {
                    "name": plural(kind),
                    "namespaced": kind not in CLUSTER_WIDE,
                    "kind": kind,
                    "verbs": verbs,
                }
                for kind in kinds[path].split()
            ]
            return {
                "kind": "APIResourceList",
                "groupVersion": path.split("/", 2)[2],
                "resources": listed,
            }
        return None

    def _answer(self, path: str) -> None:
        if discovery := self._discover(path):
            return self._json(discovery)
        if of_pod := OF_POD.fullmatch(path):
            pod = self._find(of_pod["pod"])
            return self._log(pod) if of_pod["what"] == "log" else self._proxy(pod, of_pod["path"])
        below = BELOW.fullmatch(path)
        kind = (
            next(
                (
                    name
                    for name in self.api.kinds.get(below["base"], "").split()
                    if plural(name) == below["plural"]
                ),
                "",
            )
            if below
            else ""
        )
        if not below or not kind:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        if (
            self.command == "PATCH"
            and "apply-patch" in self.headers["Content-Type"]
            and "fieldManager" in self.query
        ):
            return self._json(self.api.apply(path, json.loads(self.body)))
        if self.command == "PATCH" and "merge-patch" in self.headers["Content-Type"]:
            self.api.objects[path] = merged(self._find(path), json.loads(self.body))
            return self._json(self.api.objects[path])
        if self.command == "DELETE":
            self.api.remove(self._find(path))
            return self._json({"kind": "Status", "apiVersion": "v1", "status": "Success"})
        if self.command != "GET":
            raise Refusal(415, "UnsupportedMediaType", f"{self.command} is not supported")
        if below["name"]:
            return self._json(self._find(path))
        items = [
            {
                field: value
                for field, value in document.items()
                if field not in ("kind", "apiVersion")
            }
            for other, document in sorted(self.api.objects.items())
            if document["kind"] == kind
            and other.startswith(path if below["namespace"] else below["base"])
            and self._chosen(document)
        ]
        listed = {
            "apiVersion": below["base"].split("/", 2)[2],
            "metadata": {"resourceVersion": str(self.api.version)},
        }
        return self._json({"kind": f"{kind}List", **listed, "items": items})

    def _find(self, path: str) -> Object:
        if path not in self.api.objects:
            kinds, name = path.split("/")[-2:]
            raise Refusal(404, "NotFound", f'{kinds} "{name}" not found')
        return self.api.objects[path]

    def _chosen(self, document: Object) -> bool:
        facts = {"type": document.get("type")} | document["metadata"].get("labels", {})
        selectors = f"{self.query.get('labelSelector', '')},{self.query.get('fieldSelector', '')}"
        return all(
            facts.get(term.partition("=")[0]) == term.partition("=")[2]
            for term in selectors.split(",")
            if term
        )

    def _log(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        if pod["status"]["phase"] == "Pending":
            raise Refusal(
                400,
                "BadRequest",
                f'container in pod "{name}" is waiting to start: ContainerCreating',
            )
        log, since = self.api.logs[name], self.query.get("sinceTime", "")
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        read = (
            max(0, len(log.lines) - int(self.query["tailLines"]))
            if "tailLines" in self.query
            else 0
        )
        sent, ended = 0, False
        while not ended:
            ended = log.ended or "follow" not in self.query
            lines = log.lines[read:]
            read += len(lines)
            for moment, line in lines:
                if moment[:19] < since[:19]:
                    continue
                data = (
                    f"{moment} {line}\n" if "timestamps" in self.query else f"{line}\n"
                ).encode()
                if self.cut is not None and sent + len(data) > self.cut:
                    self.wfile.write(f"{len(data):x}\r\n".encode() + data[: self.cut - sent])
                    self.close_connection = True
                    return
                sent += len(data)
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
            time.sleep(0 if ended else 0.02)
        self.wfile.write(b"0\r\n\r\n")

    def _proxy(self, pod: Object, path: str) -> None:
        if (address := self.api.proxies.get(pod["metadata"]["name"])) is None:
            raise Refusal(
                503,
                "ServiceUnavailable",
                "error trying to reach service: dial tcp: connection refused",
            )
        url = f"{address}{path}?{urlsplit(self.path).query}"
        answer = urllib3.request(
            self.command, url, body=self.body or None, timeout=30, retries=False
        )
        self._bytes(answer.status, answer.data, {})


KubernetesApi.handler = _Handler
