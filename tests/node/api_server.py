"""A small API server over real HTTPS: pods of one namespace, listed and watched, with faults on order.

It knows no admission, no other resource and no label selector but `job-name`.
"""

import json
import socket
import ssl
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

CERTIFICATES = Path(__file__).with_name("certificates")
TOKEN = "a-token"


class ApiServer(ThreadingHTTPServer):
    """`faults` is what the next requests meet, one each: a status, "cut", "expired" (a watch from too long ago), or nothing."""

    daemon_threads = True

    def __init__(self, address: str = "127.0.0.1"):
        super().__init__((address, 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATES / "server.pem")
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.pods: dict[str, dict] = {}
        self.faults: list = []
        self.requests: Counter[str] = Counter()
        self.bytes = 0
        self.events: list[tuple[str, dict]] = []
        self.changed = threading.Condition()
        self.watches: set = set()
        self.environment = {"KUBERNETES_SERVICE_HOST": address, "KUBERNETES_SERVICE_PORT": str(self.server_address[1])}
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, *_):
        pass

    def lay_account(self, root: Path, authority: str = "ca.pem") -> None:
        """What the kubelet mounts into a pod."""
        account = root / "var/run/secrets/kubernetes.io/serviceaccount"
        account.mkdir(parents=True, exist_ok=True)
        (account / "token").write_text(TOKEN)
        (account / "ca.crt").write_bytes((CERTIFICATES / authority).read_bytes())

    def put(self, name: str, address: str = "", phase: str = "Running", job: str = "job", uid: str = "run-1", **more) -> None:
        with self.changed:
            metadata = {
                "name": name,
                "labels": {"job-name": job},
                "resourceVersion": str(len(self.events) + 1),
                "ownerReferences": [{"kind": "Job", "uid": uid, "controller": True}],
            }
            status = {"phase": phase, "podIP": address}
            document = {"metadata": metadata | more.get("metadata", {}), "status": status | more.get("status", {})}
            self.events.append(("MODIFIED" if name in self.pods else "ADDED", document))
            self.pods[name] = document
            self.changed.notify_all()

    def cut_watches(self) -> None:
        with self.changed:
            self.watches.clear()
            self.changed.notify_all()

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        api = self.server
        query = {key: values[0] for key, values in parse_qs(urlparse(self.path).query).items()}
        watching = query.get("watch") == "true"
        api.requests["watch" if watching else "list"] += 1
        fault = api.faults.pop(0) if api.faults else None
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            fault = 401
        if fault == "cut":
            return self.cut()
        if isinstance(fault, int):
            return self.answer(fault, {"kind": "Status", "code": fault})
        job = query["labelSelector"].partition("=")[2]
        if watching:
            return self.watch(int(query["resourceVersion"]), job, float(query["timeoutSeconds"]), fault)
        with api.changed:
            items = [pod for pod in api.pods.values() if pod["metadata"]["labels"]["job-name"] == job]
            return self.answer(200, {"metadata": {"resourceVersion": str(len(api.events))}, "items": items})

    def cut(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def answer(self, status: int, document: dict):
        body = json.dumps(document).encode()
        self.server.bytes += len(body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def watch(self, version: int, job: str, seconds: float, fault: str | None):
        api, me, deadline = self.server, object(), time.monotonic() + seconds
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if fault == "expired":
            self.chunk("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
        api.watches.add(me)
        while fault is None and time.monotonic() < deadline:
            with api.changed:
                if me not in api.watches:
                    return self.cut()
                new = api.events[version:] or (api.changed.wait(0.2) and [])
            version += len(new or ())
            for kind, document in new or ():
                if document["metadata"]["labels"]["job-name"] == job:
                    self.chunk(kind, document)
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, kind: str, document: dict):
        line = json.dumps({"type": kind, "object": document}).encode() + b"\n"
        self.server.bytes += len(line)
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()
