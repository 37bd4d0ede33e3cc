"""A Kubernetes API of the tests: HTTP in memory.

What is real: every object, created or changed, is checked against Kubernetes' own OpenAPI schemas (the ones that
kubernetes-validate bundles, strict); resourceVersions rise; finalizers, which a test takes off; owners; watches with bookmarks
and a history that can be forgotten (410); logs that are followed; a pod's proxy. Faults are injected: any status, slow answers,
answers and watches cut in the middle.

Limits: no controllers (see job_controller.py), no owners of fields, no admission, no RBAC but a list of accepted tokens, plain
HTTP; of changes only what our client sends: apply, delete, and a pod's proxy.
"""

import copy
import functools
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

import jsonschema
import kubernetes_validate.utils
import referencing
import yaml
from http_server import Server

Object = dict[str, Any]
Key = tuple[str, str, str, str]
"""Group and version, plural, namespace, name."""
VERSION = "1.35"
CLUSTER_WIDE = {"v1": "Namespace Node PersistentVolume", "apiextensions.k8s.io/v1": "CustomResourceDefinition"}
VERBS = ["delete", "get", "list", "patch", "watch"]
NAMESPACED = {
    "v1": "PersistentVolumeClaim ServiceAccount Service ConfigMap ResourceQuota LimitRange Pod Event",
    "batch/v1": "Job",
    "networking.k8s.io/v1": "NetworkPolicy",
    "policy/v1": "PodDisruptionBudget",
    "rbac.authorization.k8s.io/v1": "Role RoleBinding",
    "apps/v1": "Deployment",
}


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


BUILT_IN = {
    (version, plural(kind)): (kind, kinds is NAMESPACED)
    for kinds in (CLUSTER_WIDE, NAMESPACED)
    for version, names in kinds.items()
    for kind in names.split()
}


@dataclass
class Fault:
    """Answers requests that match, `times` times, with `status`, after `delay` seconds, or cut after `cut` bytes."""

    path: str
    method: str = ""
    status: int = 0
    message: str = ""
    delay: float = 0.0
    cut: int | None = None
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)


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
        self.resources = dict(BUILT_IN)
        self.objects: dict[Key, Object] = {}
        self.history: list[tuple[int, str, Key, Object]] = []
        self.forgotten = 0
        self.version = 100
        self.changed = threading.Condition(threading.RLock())
        self.faults: list[Fault] = []
        self.tokens: set[str] | None = None
        self.requests: list[tuple[str, str]] = []
        self.logs: dict[tuple[str, str], Log] = {}
        self.proxies: dict[tuple[str, str], str] = {}
        self.created: Callable[[Object], None] | None = None
        """Called in a thread of its own with each object that was created: where a test plays a controller."""
        self._closing = False

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self._closing = True
            self.changed.notify_all()
        super().__exit__()

    # What tests do to the cluster.

    def install(self, group_version: str, plural: str, kind: str) -> None:
        """A CustomResourceDefinition: its objects are taken as they are."""
        self.resources[(group_version, plural)] = (kind, True)

    def get(self, plural: str, name: str, namespace: str = "paddle") -> Object:
        return next(o for (_, p, n, m), o in self.objects.items() if (p, m) == (plural, name) and n in (namespace, ""))

    def all(self, plural: str) -> list[Object]:
        return [o for (_, p, _, _), o in self.objects.items() if p == plural]

    def pods(self, component: str) -> list[Object]:
        """Pods of a component of our jobs."""
        return [p for p in self.all("pods") if p["metadata"]["labels"].get("app.kubernetes.io/component") == component]

    def put(self, plural: str, document: Object) -> Object:
        """Create or change an object as a controller would, status included."""
        key = self._key(plural, document)
        with self.changed:
            known = self.objects.get(key)
            document = copy.deepcopy(document)
            document["metadata"].setdefault("uid", (known or {}).get("metadata", {}).get("uid") or str(uuid.uuid4()))
            document["metadata"].setdefault("creationTimestamp", now())
            return self._store(key, document, "MODIFIED" if known else "ADDED")

    def remove(self, plural: str, name: str, namespace: str = "paddle") -> None:
        with self.changed:
            for key in [k for k in self.objects if k[1] == plural and k[3] == name and k[2] in (namespace, "")]:
                self._delete(key)

    def say(self, pod: str, line: str, namespace: str = "paddle") -> None:
        with self.changed:
            self.logs.setdefault((namespace, pod), Log()).lines.append((now(precise=True), line))
            self.changed.notify_all()

    def end_log(self, pod: str, namespace: str = "paddle") -> None:
        with self.changed:
            self.logs.setdefault((namespace, pod), Log()).ended = True
            self.changed.notify_all()

    def forget(self) -> None:
        """The history so far is compacted: a watch from before gets 410 Gone."""
        with self.changed:
            self.history.clear()
            self.version += 1
            self.forgotten = self.version

    def kubeconfig(self, path: Path, user: Object | None = None) -> Path:
        """Write a kubeconfig file for this cluster."""
        path.write_text(kubeconfig(self.url, user or {"token": "good"}))
        return path

    # How.

    def _key(self, plural: str, document: Object) -> Key:
        namespaced = self.resources[(document["apiVersion"], plural)][1]
        namespace = document["metadata"].get("namespace", "") if namespaced else ""
        return (document["apiVersion"], plural, namespace, document["metadata"]["name"])

    def _store(self, key: Key, document: Object, event: str) -> Object:
        if key[:2] in BUILT_IN:
            try:
                _validator(document["apiVersion"], document["kind"]).validate(document)
            except jsonschema.ValidationError as error:
                where = ".".join(str(part) for part in error.path)
                raise Refusal(422, "Invalid", f'{document["kind"]} "{key[3]}" is invalid: {where}: {error.message}') from None
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = document
        self.history.append((self.version, event, key, copy.deepcopy(document)))
        self.changed.notify_all()
        if event == "ADDED" and self.created is not None:
            threading.Thread(target=self.created, args=(copy.deepcopy(document),), daemon=True).start()
        return document

    def release(self, plural: str, name: str, namespace: str = "paddle") -> None:
        """Takes an object's finalizers off, as the controllers do to which they belong."""
        with self.changed:
            document = self.get(plural, name, namespace)
            document["metadata"].pop("finalizers")
            if "deletionTimestamp" in document["metadata"]:
                self._delete(self._key(plural, document))

    def _delete(self, key: Key) -> None:
        known = self.objects[key]
        if known["metadata"].get("finalizers"):
            if "deletionTimestamp" not in known["metadata"]:
                self._store(key, known | {"metadata": known["metadata"] | {"deletionTimestamp": now()}}, "MODIFIED")
            return
        gone = self.objects.pop(key)
        self.version += 1
        gone["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, "DELETED", key, gone))
        self.changed.notify_all()
        # The garbage collector: what the object owned goes with it.
        for other, document in list(self.objects.items()):
            if any(owner["uid"] == gone["metadata"]["uid"] for owner in document["metadata"].get("ownerReferences", ())):
                self._delete(other)

    def apply(self, key: Key, patch: Object) -> tuple[int, Object]:
        """Server-side apply of a manager to whom all fields belong; what is as it was changes no version."""
        with self.changed:
            known = self.objects.get(key)
            merged = _merge(known or {"metadata": {"uid": str(uuid.uuid4()), "creationTimestamp": now()}}, patch)
            if merged == known:
                return 200, merged
            return (200 if known else 201), self._store(key, merged, "MODIFIED" if known else "ADDED")

    def known(self, key: Key) -> Object:
        if key not in self.objects:
            raise Refusal(404, "NotFound", f'{key[1]} "{key[3]}" not found')
        return self.objects[key]


@functools.cache
def _validator(version: str, kind: str) -> Any:
    """kubernetes-validate's own strict validator, kept: it reads a megabyte of schemas for each document otherwise."""
    utils = kubernetes_validate.utils
    folder = f"kubernetes-json-schema/v{VERSION}.0-local-strict"
    api_version = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", version)
    schema = utils.schema_contents(f"{folder}/{kind.lower()}-{api_version}.json", VERSION)
    definitions = utils.schema_contents(f"{folder}/_definitions.json", VERSION)
    registry = referencing.Resource.from_contents(schema) @ referencing.Registry()
    registry = referencing.Resource.from_contents(definitions) @ registry
    return jsonschema.validators.Draft202012Validator(schema, registry=registry)


def now(precise: bool = False) -> str:
    moment = datetime.now(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f000Z" if precise else "%Y-%m-%dT%H:%M:%SZ")


def _merge(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {name: _merge(old.get(name), value) for name, value in new.items()}
    return copy.deepcopy(new)


class _Handler(BaseHTTPRequestHandler):
    api: KubernetesApi
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _answer(self) -> None:
        self.parts = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(self.parts.query, keep_blank_values=True).items()}
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        self.api.requests.append((self.command, self.path))
        self.cut: int | None = None
        try:
            fault = self._fault()
            if fault is not None:
                time.sleep(fault.delay)
                self.cut = fault.cut
                if fault.status:
                    raise Refusal(fault.status, "Injected", fault.message or f"injected {fault.status}")
            if self.api.tokens is not None:
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                if token not in self.api.tokens:
                    raise Refusal(401, "Unauthorized", "Unauthorized")
            self._route()
        except Refusal as refusal:
            status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
            status |= {"reason": refusal.reason, "message": refusal.message, "code": refusal.code}
            self._json(refusal.code, status, fault.headers if fault else {})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _fault(self) -> Fault | None:
        with self.api.changed:
            for fault in self.api.faults:
                if fault.times and re.search(fault.path, self.path) and fault.method in ("", self.command):
                    fault.times -= 1
                    return fault
        return None

    def _json(self, code: int, document: Any, headers: dict[str, str] | None = None) -> None:
        self._bytes(code, json.dumps(document).encode(), "application/json", headers)

    def _bytes(self, code: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.cut is not None:
            self.close_connection = True
        self.wfile.write(body[: self.cut])
        self.wfile.flush()

    def _route(self) -> None:
        path = self.parts.path.strip("/").split("/")
        if path == ["api"]:
            return self._json(200, {"kind": "APIVersions", "versions": ["v1"]})
        if path == ["apis"]:
            versions = [one for one, _ in self.api.resources if "/" in one]
            served = {one.partition("/")[0]: {"groupVersion": one, "version": one.partition("/")[2]} for one in versions}
            groups = [{"name": name, "versions": [one], "preferredVersion": one} for name, one in served.items()]
            return self._json(200, {"kind": "APIGroupList", "groups": groups})
        if path == ["version"]:
            return self._json(200, {"gitVersion": f"v{VERSION}.0"})
        version, path = ("v1", path[2:]) if path[0] == "api" else ("/".join(path[1:3]), path[3:])
        known = {plural: facts for (found, plural), facts in self.api.resources.items() if found == version}
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
        if rest[:1] == ["log"]:
            return self._log(namespace, name)
        if rest[:1] == ["proxy"]:
            return self._proxy(namespace, name.partition(":")[0], "/".join(rest[1:]))
        self._object((version, plural, namespace, name), known[plural][0])

    def _object(self, key: Key, kind: str) -> None:
        api = self.api
        if self.command == "GET" and key[3]:
            return self._json(200, api.known(key))
        if self.command == "GET":
            return self._watch(key) if self.query.get("watch") == "true" else self._list(key, kind)
        if self.command == "DELETE":
            with api.changed:
                document = api.known(key)
                api._delete(key)
            return self._json(200, document)
        if self.command != "PATCH" or "apply-patch" not in self.headers.get("Content-Type", ""):
            raise Refusal(415, "UnsupportedMediaType", f"{self.command} is not supported")
        if "fieldManager" not in self.query:
            raise Refusal(400, "BadRequest", "fieldManager is required for apply patch")
        if key[2] and ("v1", "namespaces", "", key[2]) not in api.objects:
            raise Refusal(404, "NotFound", f'namespaces "{key[2]}" not found')
        self._json(*api.apply(key, json.loads(self.body)))

    def _selected(self, key: Key, other: Key, document: Object) -> bool:
        if other[:2] != key[:2] or (key[2] and other[2] != key[2]):
            return False
        labels = document["metadata"].get("labels", {})
        for term in filter(None, self.query.get("labelSelector", "").split(",")):
            name, _, value = term.replace("==", "=").partition("=")
            if labels.get(name) != value if "=" in term else name not in labels:
                return False
        for term in filter(None, self.query.get("fieldSelector", "").split(",")):
            name, _, value = term.partition("=")
            found: Any = document
            for part in name.split("."):
                found = found.get(part, "") if isinstance(found, dict) else ""
            if str(found) != value:
                return False
        return True

    def _list(self, key: Key, kind: str) -> None:
        with self.api.changed:
            items = [o for k, o in sorted(self.api.objects.items()) if self._selected(key, k, o)]
            metadata = {"resourceVersion": str(self.api.version)}
            document = {"kind": f"{kind}List", "apiVersion": key[0], "metadata": metadata, "items": items}
            text = json.dumps(document).encode()
        self._bytes(200, text, "application/json")

    def _chunks(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        self.sent = 0

    def _chunk(self, data: bytes) -> bool:
        """False when an injected fault cuts the answer here."""
        if self.cut is not None and self.sent + len(data) > self.cut:
            data = data[: self.cut - self.sent]
            self.wfile.write(f"{len(data) + 100:x}\r\n".encode() + data)
            self.wfile.flush()
            self.close_connection = True
            return False
        self.sent += len(data)
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()
        return True

    def _watch(self, key: Key) -> None:
        api = self.api
        since = int(self.query.get("resourceVersion") or 0)
        self._chunks()
        deadline = time.monotonic() + float(self.query.get("timeoutSeconds") or 3600)
        seen = since
        # As a real server's: without a name.
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(since)}}}
        if not self._chunk(json.dumps(bookmark).encode() + b"\n"):
            return
        while time.monotonic() < deadline and not api._closing:
            with api.changed:
                gone = seen < api.forgotten
                new = [entry for entry in api.history if entry[0] > seen]
                if not new and not gone:
                    api.changed.wait(min(0.2, max(0.0, deadline - time.monotonic())))
                    continue
            if gone:
                # Also in the middle of a watch: what was forgotten before it was sent would be missed.
                status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
                self._chunk(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
                break
            for version, event, other, document in new:
                seen = version
                if self._selected(key, other, document) and not self._chunk(
                    json.dumps({"type": event, "object": document}).encode() + b"\n"
                ):
                    return
        self.wfile.write(b"0\r\n\r\n")

    def _log(self, namespace: str, pod: str) -> None:
        api = self.api
        document = api.known(("v1", "pods", namespace, pod))
        if document.get("status", {}).get("phase") == "Pending":
            raise Refusal(400, "BadRequest", f'container in pod "{pod}" is waiting to start: ContainerCreating')
        log = api.logs.setdefault((namespace, pod), Log())
        since = self.query.get("sinceTime", "")
        tail = self.query.get("tailLines")
        self._chunks()
        read = max(0, len(log.lines) - int(tail)) if tail else 0
        while not api._closing:
            with api.changed:
                lines, ended = log.lines[read:], log.ended
                if not lines and not ended and self.query.get("follow") == "true":
                    api.changed.wait(0.2)
                    continue
            read += len(lines)
            for moment, line in lines:
                if moment[:19] < since[:19]:
                    continue
                stamped = f"{moment} {line}\n" if self.query.get("timestamps") == "true" else f"{line}\n"
                if not self._chunk(stamped.encode()):
                    return
            if ended or self.query.get("follow") != "true":
                break
        self.wfile.write(b"0\r\n\r\n")

    def _proxy(self, namespace: str, pod: str, path: str) -> None:
        api = self.api
        api.known(("v1", "pods", namespace, pod))
        if (namespace, pod) not in api.proxies:
            raise Refusal(503, "ServiceUnavailable", "error trying to reach service: dial tcp: connection refused")
        address = f"{api.proxies[(namespace, pod)]}/{path}?{self.parts.query}"
        headers = {name: self.headers[name] for name in ("Range", "Content-Type") if name in self.headers}
        request = urllib.request.Request(address, data=self.body or None, method=self.command, headers=headers)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
                passed = {name: value for name, value in answer.headers.items() if name.startswith("X-")}
                self._bytes(answer.status, answer.read(), answer.headers.get("Content-Type", ""), passed)
        except urllib.error.HTTPError as error:
            self._bytes(error.code, error.read(), "text/plain")


KubernetesApi.handler = _Handler
