"""The Kubernetes API for pods that ask it for their peers.

Limits: it lists and watches the pods of one Job, by the label job-name, over HTTPS and for the
token that the pods mount. It refuses every other request with 403, as without a Role.
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import json
import secrets
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from paddle_aws.operations.errors import BadInput
from paddle_aws.rehearsal.pods.job import POLL_INTERVAL, Watcher
from paddle_aws.rehearsal.pods.manifests import AnyJob
from paddle_aws.rehearsal.pods.pod import Host, Pod, PodEnd

_ACCOUNT = Path("var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts a pod's token and the cluster's CA, below the pod's root."""


class HTTPServer(ThreadingHTTPServer):
    """For pods, which may end, or be killed, while it answers them: it says nothing of a connection
    that the other side has closed, and waits for none.
    """

    daemon_threads = True

    def start(self) -> None:
        """Serves in a thread, until `stop`."""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints any other error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class PodApi(Watcher, AbstractContextManager["PodApi"]):
    """The API server while a Job runs: a watcher of its pods."""

    def __init__(self, folder: Path) -> None:
        """`folder` gets a certificate of its own. Raises BadInput without openssl."""
        folder.mkdir(exist_ok=True)
        self._certificate, key = folder / "ca.crt", folder / "key.pem"
        _sign(self._certificate, key)
        self._token = secrets.token_urlsafe(16)
        self._pods: dict[str, dict[str, Any]] = {}
        self._events: list[dict[str, Any]] = []
        api = self

        class Handler(_Handler):
            pods, events, token = api._pods, api._events, api._token

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate, key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.stop()

    def prepare(self, job: AnyJob, host: Host) -> tuple[AnyJob, Host]:
        """Gives the pods what the kubelet gives them: the server's address, a token and the CA."""
        port = str(self._server.server_port)
        variables = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
        authority = self._certificate.read_text()
        files = {_ACCOUNT / "token": self._token, _ACCOUNT / "ca.crt": authority}
        return job, replace(host, api_variables=variables, api_files=files)

    def pod_started(self, pod: Pod, index: int | None) -> None:
        self._put(pod, "Running")

    def pod_ended(self, pod: Pod, index: int | None, end: PodEnd, verdict: str) -> None:
        self._put(pod, "Succeeded" if end.succeeded else "Failed")

    def _put(self, pod: Pod, phase: str) -> None:
        facts, version = pod.facts, str(len(self._events) + 1)
        owner = {"kind": "Job", "uid": facts.labels.get("controller-uid", ""), "controller": True}
        metadata = {
            "name": facts.name,
            "namespace": facts.namespace,
            "labels": dict(facts.labels),
            "resourceVersion": version,
            "ownerReferences": [owner],
        }
        status = {"phase": phase, "podIP": facts.address}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}
        self._pods[facts.name] = document
        self._events.append({"type": "MODIFIED", "object": document})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    pods: dict[str, dict[str, Any]]
    events: list[dict[str, Any]]
    """Each change of a pod; the version of the n-th is n."""
    token: str

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: the pods say what they learn."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        _, version, _, namespace, *kind = (parts.path.split("/") + [""] * 5)[1:6]
        label, _, job = query.get("labelSelector", "").partition("=")
        allowed = secrets.compare_digest(
            self.headers.get("Authorization", "").encode(), f"Bearer {self.token}".encode()
        )
        if not allowed or (version, kind, label) != ("v1", ["pods"], "job-name"):
            return self._answer(403, {"kind": "Status", "code": 403, "reason": "Forbidden"})

        def selects(pod: dict[str, Any]) -> bool:
            metadata = pod["metadata"]
            return (metadata["namespace"], metadata["labels"].get(label)) == (namespace, job)

        if query.get("watch") == "true":
            return self._watch(selects, query)
        latest = {"resourceVersion": str(len(self.events))}
        items = [pod for pod in list(self.pods.values()) if selects(pod)]
        self._answer(200, {"kind": "PodList", "metadata": latest, "items": items})

    def _watch(self, selects: Any, query: dict[str, str]) -> None:
        """Sends the changes after the version asked for, until the time asked for is over."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        version = int(query.get("resourceVersion") or 0)
        deadline = time.monotonic() + float(query.get("timeoutSeconds", 60))
        while time.monotonic() < deadline:
            for event in self.events[version:]:
                version += 1
                if selects(event["object"]):
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                    self.wfile.flush()
            time.sleep(POLL_INTERVAL)
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, status: int, document: Mapping[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _sign(certificate: Path, key: Path) -> None:
    """Makes a self-signed certificate for 127.0.0.1, valid for two days."""
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=rehearsal"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key)]
    command += ["-out", str(certificate)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        raise BadInput(
            "discovery is pod-list, whose pods ask an API server over TLS: install openssl, which "
            "makes its certificate here, or use discovery: index"
        ) from None
