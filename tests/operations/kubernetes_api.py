"""A Kubernetes API of the tests: HTTP in memory, for our client and for the real kubectl.

What is real: every object, created or changed, is checked against Kubernetes' own OpenAPI schemas (the ones that
kubernetes-validate bundles, strict); a Job's template, selector and completions are immutable; resourceVersions rise
and conflict; server-side apply with owners of fields; finalizers, which a test takes off; watches with a history that
can be forgotten (410); logs that are followed; a pod's proxy. Faults are injected: any status, slow answers, answers
and watches cut in the middle.

Limits: no controllers (see job_controller.py), no admission but Job immutability, no RBAC but a list of accepted
tokens, no defaults filled in, no protobuf, tables or field validation modes, lists of objects are owned as a whole
unless their items have names, plain HTTP.
"""

from __future__ import annotations

import copy
import functools
import json
import re
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import jsonschema
import kubernetes_validate.utils
import referencing
import yaml

Object = dict[str, Any]
VERSION = "1.35"

# (group and version, plural): (kind, namespaced).
BUILT_IN = {
    ("v1", "namespaces"): ("Namespace", False),
    ("v1", "nodes"): ("Node", False),
    ("v1", "persistentvolumes"): ("PersistentVolume", False),
    ("v1", "persistentvolumeclaims"): ("PersistentVolumeClaim", True),
    ("v1", "serviceaccounts"): ("ServiceAccount", True),
    ("v1", "services"): ("Service", True),
    ("v1", "configmaps"): ("ConfigMap", True),
    ("v1", "resourcequotas"): ("ResourceQuota", True),
    ("v1", "limitranges"): ("LimitRange", True),
    ("v1", "pods"): ("Pod", True),
    ("v1", "events"): ("Event", True),
    ("batch/v1", "jobs"): ("Job", True),
    ("networking.k8s.io/v1", "networkpolicies"): ("NetworkPolicy", True),
    ("policy/v1", "poddisruptionbudgets"): ("PodDisruptionBudget", True),
    ("rbac.authorization.k8s.io/v1", "roles"): ("Role", True),
    ("rbac.authorization.k8s.io/v1", "rolebindings"): ("RoleBinding", True),
    ("apps/v1", "deployments"): ("Deployment", True),
    ("apiextensions.k8s.io/v1", "customresourcedefinitions"): ("CustomResourceDefinition", False),
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


class KubernetesApi:
    """Use as a context manager; `url` is where it listens."""

    def __init__(self) -> None:
        self.resources = dict(BUILT_IN)
        self.objects: dict[tuple[str, str, str, str], Object] = {}
        self.history: list[tuple[int, str, tuple[str, str, str, str], Object]] = []
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

    def __enter__(self) -> KubernetesApi:
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self._closing = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

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

    def kubeconfig(self, path: Any, user: Object | None = None) -> Any:
        """Write a kubeconfig file for this cluster."""
        context = {"cluster": "double", "user": "tester"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "double", "cluster": {"server": self.url}}],
            "users": [{"name": "tester", "user": user or {"token": "good"}}],
            "contexts": [{"name": "double", "context": context}],
            "current-context": "double",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    # How.

    def _key(self, plural: str, document: Object) -> tuple[str, str, str, str]:
        namespaced = self.resources[(document["apiVersion"], plural)][1]
        namespace = document["metadata"].get("namespace", "") if namespaced else ""
        return (document["apiVersion"], plural, namespace, document["metadata"]["name"])

    def _store(self, key: tuple[str, str, str, str], document: Object, event: str) -> Object:
        self._validate(key, document)
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = document
        self.history.append((self.version, event, key, copy.deepcopy(document)))
        self.changed.notify_all()
        if event == "ADDED" and self.created is not None:
            threading.Thread(target=self.created, args=(copy.deepcopy(document),), daemon=True).start()
        return document

    def _validate(self, key: tuple[str, str, str, str], document: Object) -> None:
        if key[:2] not in BUILT_IN:
            return
        try:
            _validator(document["apiVersion"], document["kind"]).validate(document)
        except jsonschema.ValidationError as error:
            where = ".".join(str(part) for part in error.path)
            raise Refusal(422, "Invalid", f'{document["kind"]} "{key[3]}" is invalid: {where}: {error.message}') from None

    def release(self, plural: str, name: str, namespace: str = "paddle") -> None:
        """Takes an object's finalizers off, as the controllers do to which they belong."""
        with self.changed:
            document = self.get(plural, name, namespace)
            document["metadata"].pop("finalizers")
            if "deletionTimestamp" in document["metadata"]:
                self._delete(self._key(plural, document))

    def _delete(self, key: tuple[str, str, str, str]) -> None:
        known = self.objects.get(key)
        if known is not None and known["metadata"].get("finalizers"):
            if "deletionTimestamp" not in known["metadata"]:
                self._store(key, known | {"metadata": known["metadata"] | {"deletionTimestamp": now()}}, "MODIFIED")
            return
        gone = self.objects.pop(key, None)
        if gone is None:
            return
        self.version += 1
        gone["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, "DELETED", key, gone))
        self.changed.notify_all()
        # The garbage collector: what the object owned goes with it.
        owned = [
            k
            for k, o in self.objects.items()
            if any(owner["uid"] == gone["metadata"].get("uid") for owner in o["metadata"].get("ownerReferences", ()))
        ]
        for other in owned:
            self._delete(other)

    def apply(self, key: tuple[str, str, str, str], patch: Object, manager: str, force: bool) -> tuple[int, Object]:
        """Server-side apply: fields, their owners, and conflicts between owners."""
        with self.changed:
            known = self.objects.get(key)
            given = dict(_leaves({k: v for k, v in patch.items() if k not in ("apiVersion", "kind")}))
            given = {path: value for path, value in given.items() if path not in ("metadata.name", "metadata.namespace")}
            owners = {
                entry["manager"]: set(entry["fieldsV1"].get("paths", ()))
                for entry in (known or {}).get("metadata", {}).get("managedFields", ())
            }
            document = copy.deepcopy(known) if known else {"metadata": {"uid": str(uuid.uuid4()), "creationTimestamp": now()}}
            current = dict(_leaves(document))
            taken = [
                (path, other)
                for other, paths in owners.items()
                for path in sorted(paths & given.keys())
                if other != manager and current.get(path) != given[path]
            ]
            if taken and not force:
                listed = ", ".join(f'"{other}": .{path}' for path, other in taken)
                raise Refusal(409, "Conflict", f"Apply failed with {len(taken)} conflict: conflicts with {listed}")
            merged = _merge(document, patch)
            for path in owners.get(manager, set()) - given.keys():
                if not any(path in paths for other, paths in owners.items() if other != manager):
                    _drop(merged, path.split("."))
            if known:
                self._immutable(key, known, merged)
            owners = {other: paths - {path for path, o in taken if o == other} for other, paths in owners.items()}
            owners[manager] = set(given)
            merged["metadata"]["managedFields"] = [
                {"manager": other, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"paths": sorted(paths)}}
                for other, paths in owners.items()
            ]
            if known and _without_version(known) == _without_version(merged):
                return 200, known
            return (200 if known else 201), self._store(key, merged, "MODIFIED" if known else "ADDED")

    def _immutable(self, key: tuple[str, str, str, str], old: Object, new: Object) -> None:
        if key[1] != "jobs":
            return
        for name in ("template", "selector", "completions", "completionMode", "podFailurePolicy"):
            if old["spec"].get(name) != new["spec"].get(name):
                raise Refusal(422, "Invalid", f'Job.batch "{key[3]}" is invalid: spec.{name}: field is immutable')

    def replace(self, key: tuple[str, str, str, str], document: Object) -> Object:
        with self.changed:
            known = self._known(key)
            given = document["metadata"].get("resourceVersion")
            if given is not None and given != known["metadata"]["resourceVersion"]:
                message = f'Operation cannot be fulfilled on {key[1]} "{key[3]}": the object has been modified'
                raise Refusal(409, "Conflict", message)
            self._immutable(key, known, document)
            document["metadata"] = known["metadata"] | document["metadata"]
            return self._store(key, document, "MODIFIED")

    def _known(self, key: tuple[str, str, str, str]) -> Object:
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


def _without_version(document: Object) -> Object:
    metadata = {k: v for k, v in document["metadata"].items() if k not in ("resourceVersion", "managedFields")}
    return {**document, "metadata": metadata}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}".lstrip(".").replace("/", "~"))
    else:
        yield path, value


def _drop(value: Any, path: list[str]) -> None:
    for part in path[:-1]:
        value = value.get(part, {}) if isinstance(value, dict) else {}
    if isinstance(value, dict):
        value.pop(path[-1].replace("~", "/"), None)


def _merge(old: Any, new: Any) -> Any:
    """What apply makes of objects and of lists whose items have names; null removes a field (merge patch)."""
    if isinstance(old, dict) and isinstance(new, dict):
        merged = dict(old)
        for name, value in new.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = _merge(merged.get(name), value)
        return merged
    return copy.deepcopy(new)


class _Handler(BaseHTTPRequestHandler):
    api: KubernetesApi
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def log_message(self, format: str, *args: Any) -> None:
        pass

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
        if path[0] == "version":
            return self._json(200, {"major": "1", "minor": "35", "gitVersion": f"v{VERSION}.0-double"})
        if path == ["api"]:
            return self._json(200, {"kind": "APIVersions", "versions": ["v1"]})
        if path == ["apis"]:
            return self._json(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": self._groups()})
        if path[0] == "api" and len(path) >= 2:
            return self._group("v1", path[2:])
        if path[0] == "apis" and len(path) >= 3:
            return self._group("/".join(path[1:3]), path[3:])
        raise Refusal(404, "NotFound", "the server could not find the requested resource")

    def _groups(self) -> list[Object]:
        found = []
        for group_version in sorted({gv for gv, _ in self.api.resources if "/" in gv}):
            version = {"groupVersion": group_version, "version": group_version.split("/")[1]}
            found.append({"name": group_version.split("/")[0], "versions": [version], "preferredVersion": version})
        return found

    def _group(self, group_version: str, path: list[str]) -> None:
        known = {plural: facts for (gv, plural), facts in self.api.resources.items() if gv == group_version}
        if not known:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        if not path:
            verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
            listed = [
                {"name": plural, "singularName": kind.lower(), "namespaced": namespaced, "kind": kind, "verbs": verbs}
                for plural, (kind, namespaced) in known.items()
            ]
            return self._json(
                200, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}
            )
        namespace = ""
        if path[0] == "namespaces" and len(path) > 2:
            namespace, path = path[1], path[2:]
        plural, name, rest = path[0], unquote(path[1]) if len(path) > 1 else "", path[2:]
        if plural not in known:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        if rest[:1] == ["log"]:
            return self._log(namespace, name)
        if rest[:1] == ["proxy"]:
            return self._proxy(namespace, name.partition(":")[0], "/".join(rest[1:]))
        self._object((group_version, plural, namespace, name), known[plural][0])

    def _object(self, key: tuple[str, str, str, str], kind: str) -> None:
        api = self.api
        if self.command == "GET" and key[3]:
            return self._json(200, api._known(key))
        if self.command == "GET":
            return self._watch(key) if self.query.get("watch") in ("true", "1") else self._list(key, kind)
        if self.command == "DELETE":
            with api.changed:
                document = api._known(key)
                api._delete(key)
            return self._json(200, document)
        kind_of_patch = self.headers.get("Content-Type", "")
        document = yaml.safe_load(self.body) if "yaml" in kind_of_patch else json.loads(self.body)
        if self.command != "PATCH" and key[2] and document["metadata"].get("namespace", key[2]) != key[2]:
            raise Refusal(400, "BadRequest", "the namespace of the object does not match the namespace on the request")
        if key[2] and ("v1", "namespaces", "", key[2]) not in api.objects and key[2] != "default":
            raise Refusal(404, "NotFound", f'namespaces "{key[2]}" not found')
        if "dryRun" in self.query:
            api._validate(key, document)
            return self._json(200, document)
        if self.command == "POST":
            document["metadata"].setdefault("namespace", key[2]) if key[2] else None
            key = (*key[:3], document["metadata"]["name"])
            with api.changed:
                if key in api.objects:
                    raise Refusal(409, "AlreadyExists", f'{key[1]} "{key[3]}" already exists')
                return self._json(201, api.put(key[1], document))
        if self.command == "PUT":
            return self._json(200, api.replace(key, document))
        if "apply-patch" in kind_of_patch:
            if "fieldManager" not in self.query:
                raise Refusal(400, "BadRequest", "fieldManager is required for apply patch")
            code, found = api.apply(key, document, self.query["fieldManager"], self.query.get("force") == "true")
            return self._json(code, found)
        if "merge-patch" in kind_of_patch:
            with api.changed:
                merged = _merge(api._known(key), document)
                return self._json(200, api.replace(key, merged))
        raise Refusal(415, "UnsupportedMediaType", f"{kind_of_patch} is not supported")

    def _selected(self, key: tuple[str, str, str, str], other: tuple[str, str, str, str], document: Object) -> bool:
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

    def _list(self, key: tuple[str, str, str, str], kind: str) -> None:
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

    def _watch(self, key: tuple[str, str, str, str]) -> None:
        api = self.api
        since = int(self.query.get("resourceVersion") or 0)
        self._chunks()
        deadline = time.monotonic() + float(self.query.get("timeoutSeconds") or 3600)
        seen = since
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
        document = api._known(("v1", "pods", namespace, pod))
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
        api._known(("v1", "pods", namespace, pod))
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
