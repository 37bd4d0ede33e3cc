"""A small API server over real HTTPS: the pods of one namespace by their Job's name, listed and watched, with faults on order."""

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

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATES / "server.pem")
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.pods: dict[str, dict] = {}
        self.faults: list = []
        self.requests: Counter[str] = Counter()
        self.bytes = 0
        self.events: list[tuple[str, dict]] = []
        self.changed = threading.Condition()
        self.watches: set[socket.socket] = set()
        self.environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.server_address[1])}
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

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
            owners = [{"kind": "Job", "uid": uid, "controller": True}]
            metadata = {"name": name, "labels": {"job-name": job}, "resourceVersion": str(len(self.events) + 1)}
            metadata |= {"ownerReferences": owners, **more.get("metadata", {})}
            document = {"metadata": metadata, "status": {"phase": phase, "podIP": address, **more.get("status", {})}}
            self.events.append(("MODIFIED" if name in self.pods else "ADDED", document))
            self.pods[name] = document
            self.changed.notify_all()

    def cut_watches(self) -> None:
        for connection in set(self.watches):
            connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        api, query = self.server, {key: values[0] for key, values in parse_qs(urlparse(self.path).query).items()}
        job, watching = query["labelSelector"].partition("=")[2], query.get("watch") == "true"
        api.requests["watch" if watching else "list"] += 1
        fault = api.faults.pop(0) if api.faults else None
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            fault = 401
        if fault == "cut":
            self.connection.shutdown(socket.SHUT_RDWR)
        elif isinstance(fault, int):
            self.send(fault, {"kind": "Status", "code": fault})
        elif watching:
            self.watch(int(query["resourceVersion"]), job, float(query["timeoutSeconds"]), fault)
        else:
            items = [pod for pod in list(api.pods.values()) if pod["metadata"]["labels"]["job-name"] == job]
            self.send(200, {"metadata": {"resourceVersion": str(len(api.events))}, "items": items})

    def send(self, status: int, document: dict):
        body = json.dumps(document).encode()
        self.server.bytes += len(body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def watch(self, version: int, job: str, seconds: float, fault: str | None):
        """Until its time is over, or the connection is cut: what is sent then fails."""
        api, deadline = self.server, time.monotonic() + seconds
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if fault == "expired":
            self.event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
        api.watches.add(self.connection)
        while fault is None and time.monotonic() < deadline:
            with api.changed:
                new = api.events[version:] or (api.changed.wait(0.2) and [])
            version += len(new or ())
            for kind, document in new or ():
                if document["metadata"]["labels"]["job-name"] == job:
                    self.event(kind, document)
        self.wfile.write(b"0\r\n\r\n")

    def event(self, kind: str, document: dict):
        line = json.dumps({"type": kind, "object": document}).encode() + b"\n"
        self.server.bytes += len(line)
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
