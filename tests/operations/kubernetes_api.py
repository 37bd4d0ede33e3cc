"""A Kubernetes API of the tests: HTTP in memory, for what the commands and kubectl ask.

What is real: server-side apply, finalizers, which a test takes off, owners, logs that are followed, a pod's proxy. Faults are
injected: any status, answers cut in the middle, and whatever a test wants to happen at that moment.

Limits: no controllers (see job_controller.py), no owners of fields, no validation (tests/charts has it), no admission, no RBAC
but a list of accepted tokens.
"""

import copy
import gzip
import json
import re
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml
from http_server import Server

Object = dict[str, Any]
Key = tuple[str, str, str, str]
"""Group and version, plural, namespace, name."""
CLUSTER_WIDE = {"v1": "Namespace Node PersistentVolume", "apiextensions.k8s.io/v1": "CustomResourceDefinition"}
NAMESPACED = {
    "v1": "PersistentVolumeClaim ServiceAccount Service ConfigMap ResourceQuota LimitRange Pod Event",
    "batch/v1": "Job",
    "networking.k8s.io/v1": "NetworkPolicy",
    "policy/v1": "PodDisruptionBudget",
    "rbac.authorization.k8s.io/v1": "Role RoleBinding",
    "apps/v1": "Deployment",
}
VERBS = ["delete", "get", "list", "patch"]


def kubeconfig(server: str, user: Object, name: str = "double", **cluster: str) -> str:
    """A kubeconfig of one cluster."""
    kinds = {
        "clusters": {"cluster": {"server": server, **cluster}},
        "users": {"user": user},
        "contexts": {"context": {"cluster": name, "user": name}},
    }
    return yaml.safe_dump({kind: [{"name": name, **entry}] for kind, entry in kinds.items()} | {"current-context": name})


def plural(kind: str) -> str:
    return f"{kind.lower().removesuffix('y')}ies" if kind.endswith("cy") else f"{kind.lower()}s"


@dataclass
class Fault:
    """Of the requests that match, but for the first `skip`, `times` get `status`, or an answer cut after `cut` bytes.

    `then` happens before that, once each time.
    """

    path: str
    method: str = ""
    status: int = 0
    message: str = ""
    cut: int | None = None
    times: int = 1
    skip: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    then: Callable[[], object] = lambda: None


class Refusal(Exception):
    """An answer that is a Status object."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


@dataclass
class Log:
    """What a container wrote: (time, line)."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    ended: bool = False


class KubernetesApi(Server):
    """The API server, with what it holds."""

    def __init__(self) -> None:
        self.resources = {
            (version, plural(kind)): (kind, kinds is NAMESPACED)
            for kinds in (CLUSTER_WIDE, NAMESPACED)
            for version, names in kinds.items()
            for kind in names.split()
        }
        self.objects: dict[Key, Object] = {}
        self.faults: list[Fault] = []
        self.lock = threading.Lock()
        self.tokens: set[str] | None = None
        self.requests: list[tuple[str, str]] = []
        self.logs: dict[tuple[str, str], Log] = {}
        self.proxies: dict[tuple[str, str], str] = {}
        self.created: Callable[[Object], None] = lambda document: None
        """Called with each object that was applied anew: where a test plays a controller."""
        self.put("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "paddle"}})

    # What tests do to the cluster.

    def install(self, group_version: str, plural: str, kind: str) -> None:
        """A CustomResourceDefinition."""
        self.resources[(group_version, plural)] = (kind, True)

    def get(self, plural: str, name: str, namespace: str = "paddle") -> Object:
        return next(o for (_, p, n, m), o in self.objects.items() if (p, m) == (plural, name) and n in (namespace, ""))

    def all(self, plural: str) -> list[Object]:
        return [o for (_, p, _, _), o in list(self.objects.items()) if p == plural]

    def of(self, component: str, plural: str = "jobs") -> list[Object]:
        """The Jobs or pods of a component of our jobs."""
        return [o for o in self.all(plural) if o["metadata"].get("labels", {}).get("app.kubernetes.io/component") == component]

    def put(self, plural: str, document: Object) -> Object:
        """Create or change an object as a controller would, status included."""
        namespaced = self.resources[(document["apiVersion"], plural)][1]
        metadata = document["metadata"]
        key = (document["apiVersion"], plural, metadata.get("namespace", "") if namespaced else "", metadata["name"])
        self.objects[key] = _merge({"metadata": self._given(key)}, document)
        return self.objects[key]

    def remove(self, plural: str, name: str) -> None:
        for key in [k for k in self.objects if (k[1], k[3]) == (plural, name)]:
            self.delete(key)

    def say(self, pod: str, line: str, namespace: str = "paddle") -> None:
        self.logs.setdefault((namespace, pod), Log()).lines.append((now(precise=True), line))

    def end_log(self, pod: str, namespace: str = "paddle") -> None:
        self.logs.setdefault((namespace, pod), Log()).ended = True

    def release(self, plural: str, name: str) -> None:
        """Takes an object's finalizers off, as the controllers do to which they belong."""
        self.get(plural, name)["metadata"].pop("finalizers")
        self.remove(plural, name)

    def kubeconfig(self, path: Path, user: Object | None = None) -> Path:
        """Write a kubeconfig file for this cluster."""
        path.write_text(kubeconfig(self.url, user or {"token": "good"}))
        return path

    # How.

    def _given(self, key: Key) -> Object:
        """What the server gives an object."""
        known = self.objects.get(key, {"metadata": {}})["metadata"]
        return {"uid": known.get("uid") or str(uuid.uuid4()), "creationTimestamp": known.get("creationTimestamp") or now()}

    def delete(self, key: Key) -> None:
        metadata = self.known(key)["metadata"]
        if metadata.get("finalizers"):
            metadata.setdefault("deletionTimestamp", now())
            return
        del self.objects[key]
        # The garbage collector: what the object owned goes with it.
        for other, document in list(self.objects.items()):
            if any(owner["uid"] == metadata["uid"] for owner in document["metadata"].get("ownerReferences", ())):
                self.delete(other)

    def apply(self, key: Key, patch: Object) -> Object:
        """Server-side apply of a manager to whom all fields belong."""
        known = self.objects.get(key)
        self.objects[key] = document = _merge(known or {"metadata": self._given(key)}, patch)
        if known is None:
            self.created(copy.deepcopy(document))
        return document

    def known(self, key: Key) -> Object:
        if key not in self.objects:
            raise Refusal(404, "NotFound", f'{key[1]} "{key[3]}" not found')
        return self.objects[key]


def now(precise: bool = False) -> str:
    moment = datetime.now(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f000Z" if precise else "%Y-%m-%dT%H:%M:%SZ")


def _merge(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {name: _merge(old.get(name), value) for name, value in new.items()}
    return copy.deepcopy(new)


def _selected(document: Object, labels: str, fields: str) -> bool:
    facts = {"type": document.get("type")} | document["metadata"].get("labels", {})
    terms = (term.partition("=") for term in f"{labels},{fields}".split(",") if term)
    return all(facts.get(name) == value for name, _, value in terms)


class _Handler(BaseHTTPRequestHandler):
    api: KubernetesApi
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def do_GET(self) -> None:
        self.parts = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(self.parts.query, keep_blank_values=True).items()}
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.api.requests.append((self.command, self.path))
        fault = self._fault()
        self.cut = fault.cut
        try:
            fault.then()
            if fault.status:
                raise Refusal(fault.status, "Injected", fault.message or f"injected {fault.status}")
            if self.api.tokens is not None and self.headers.get("Authorization", "")[7:] not in self.api.tokens:
                raise Refusal(401, "Unauthorized", "Unauthorized")
            self._route()
        except Refusal as refusal:
            status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
            status |= {"reason": refusal.reason, "message": refusal.message, "code": refusal.code}
            self._json(refusal.code, status, fault.headers)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _fault(self) -> Fault:
        with self.api.lock:
            for fault in self.api.faults:
                if fault.times and re.search(fault.path, self.path) and fault.method in ("", self.command):
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    return fault
        return Fault("")

    def _json(self, code: int, document: Any, headers: dict[str, str] | None = None) -> None:
        body, more = json.dumps(document).encode(), {"Content-Type": "application/json", **(headers or {})}
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            body, more = gzip.compress(body), more | {"Content-Encoding": "gzip"}
        self._bytes(code, body, more)

    def _bytes(self, code: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = self.close_connection or self.cut is not None
        self.wfile.write(body[: self.cut])
        self.wfile.flush()

    def _route(self) -> None:
        path, resources = self.parts.path.strip("/").split("/"), self.api.resources
        if path == ["api"]:
            return self._json(200, {"kind": "APIVersions", "versions": ["v1"]})
        if path == ["version"]:
            return self._json(200, {"gitVersion": "v1.35.0"})
        if path == ["apis"]:
            versions = [one for one, _ in resources if "/" in one]
            served = {one.partition("/")[0]: {"groupVersion": one, "version": one.partition("/")[2]} for one in versions}
            groups = [{"name": name, "versions": [one], "preferredVersion": one} for name, one in served.items()]
            return self._json(200, {"kind": "APIGroupList", "groups": groups})
        version, path = ("v1", path[2:]) if path[0] == "api" else ("/".join(path[1:3]), path[3:])
        known = {plural: facts for (found, plural), facts in resources.items() if found == version}
        if known and not path:
            listed = [
                {"name": plural, "namespaced": namespaced, "kind": kind, "verbs": VERBS}
                for plural, (kind, namespaced) in known.items()
            ]
            return self._json(200, {"kind": "APIResourceList", "groupVersion": version, "resources": listed})
        namespace = ""
        if path[:1] == ["namespaces"] and len(path) > 2:
            namespace, path = path[1], path[2:]
        if not path or path[0] not in known:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        plural, name, rest = path[0], unquote(path[1]) if len(path) > 1 else "", path[2:]
        if rest:
            pod = self.api.known((version, plural, namespace, name.partition(":")[0]))
            return self._log(namespace, pod) if rest == ["log"] else self._proxy(namespace, pod, "/".join(rest[1:]))
        self._object((version, plural, namespace, name), known[plural][0])

    def _object(self, key: Key, kind: str) -> None:
        api = self.api
        if self.command == "PATCH" and "apply-patch" in self.headers["Content-Type"] and "fieldManager" in self.query:
            return self._json(200, api.apply(key, json.loads(self.body)))
        if self.command == "DELETE":
            api.delete(key)
            return self._json(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        if self.command != "GET":
            raise Refusal(415, "UnsupportedMediaType", f"{self.command} is not supported")
        if key[3]:
            return self._json(200, api.known(key))
        selectors = (self.query.get("labelSelector", ""), self.query.get("fieldSelector", ""))
        items = [
            {field: value for field, value in document.items() if field not in ("kind", "apiVersion")}
            for other, document in sorted(list(api.objects.items()))
            if other[:2] == key[:2] and key[2] in ("", other[2]) and _selected(document, *selectors)
        ]
        self._json(200, {"kind": f"{kind}List", "apiVersion": key[0], "metadata": {"resourceVersion": "1"}, "items": items})

    def _log(self, namespace: str, pod: Object) -> None:
        name, phase = pod["metadata"]["name"], pod["status"]["phase"]
        if phase == "Pending":
            raise Refusal(400, "BadRequest", f'container in pod "{name}" is waiting to start: ContainerCreating')
        log, since = self.api.logs.setdefault((namespace, name), Log()), self.query.get("sinceTime", "")
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        read = max(0, len(log.lines) - int(self.query["tailLines"])) if "tailLines" in self.query else 0
        sent, ended = 0, False
        while not ended:
            ended = log.ended or "follow" not in self.query
            lines = log.lines[read:]
            read += len(lines)
            for moment, line in lines:
                if moment[:19] < since[:19]:
                    continue
                data = (f"{moment} {line}\n" if "timestamps" in self.query else f"{line}\n").encode()
                if self.cut is not None and sent + len(data) > self.cut:
                    self.wfile.write(f"{len(data):x}\r\n".encode() + data[: self.cut - sent])
                    self.close_connection = True
                    return
                sent += len(data)
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
            time.sleep(0 if ended else 0.02)
        self.wfile.write(b"0\r\n\r\n")

    def _proxy(self, namespace: str, pod: Object, path: str) -> None:
        if (address := self.api.proxies.get((namespace, pod["metadata"]["name"]))) is None:
            raise Refusal(503, "ServiceUnavailable", "error trying to reach service: dial tcp: connection refused")
        request = urllib.request.Request(f"{address}/{path}?{self.parts.query}", self.body or None, method=self.command)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
                self._bytes(answer.status, answer.read(), {})
        except urllib.error.HTTPError as error:
            self._bytes(error.code, error.read(), {})


KubernetesApi.handler = _Handler
