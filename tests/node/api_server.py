"""A small API server over real HTTPS: pods of one namespace, listed and watched, with faults on order.

It knows no admission, no other resource and no label selector but `job-name`; that the client asks what a real
server understands is Kubernetes' own client's part.
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


class ApiServer:
    """`faults` is a list of what the next requests meet, one each: a status, "slow", "cut", or a call that returns one."""

    def __init__(self, address: str = "127.0.0.1"):
        self.pods: dict[str, dict] = {}
        self.faults: list = []
        self.forbidden = False
        self.requests: Counter[str] = Counter()
        self.bytes = 0
        self._version = 1000
        self._events: list[tuple[int, str, dict]] = []
        self._changed = threading.Condition()
        self._watches: set = set()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATES / "server.pem")
        handler = type("Handler", (_Handler,), {"api": self})
        server = type(
            "Server",
            (ThreadingHTTPServer,),
            {"address_family": 10 if ":" in address else 2, "daemon_threads": True, "handle_error": lambda *_: None},
        )
        self._server = server((address, 0), handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.address, self.port = address, self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def lay_account(self, root: Path, authority: str = "ca.pem") -> None:
        """What the kubelet mounts into a pod."""
        account = root / "var/run/secrets/kubernetes.io/serviceaccount"
        account.mkdir(parents=True, exist_ok=True)
        (account / "token").write_text(TOKEN)
        (account / "ca.crt").write_bytes((CERTIFICATES / authority).read_bytes())

    @property
    def environment(self) -> dict[str, str]:
        return {"KUBERNETES_SERVICE_HOST": self.address, "KUBERNETES_SERVICE_PORT": str(self.port)}

    def put(self, name: str, address: str = "", phase: str = "Running", job: str = "job", uid: str = "run-1", **more) -> None:
        with self._changed:
            kind = "MODIFIED" if name in self.pods else "ADDED"
            self._version += 1
            document = {
                "metadata": {
                    "name": name,
                    "labels": {"job-name": job},
                    "resourceVersion": str(self._version),
                    "ownerReferences": [{"kind": "Job", "uid": uid, "controller": True}],
                    **more.get("metadata", {}),
                },
                "status": {"phase": phase, "podIP": address, **more.get("status", {})},
            }
            self.pods[name] = document
            self._events.append((self._version, kind, document))
            self._changed.notify_all()

    def delete(self, name: str) -> None:
        with self._changed:
            self._version += 1
            document = self.pods.pop(name)
            document["metadata"]["resourceVersion"] = str(self._version)
            self._events.append((self._version, "DELETED", document))
            self._changed.notify_all()

    def cut_watches(self) -> None:
        with self._changed:
            self._watches.clear()
            self._changed.notify_all()

    def forget_events(self) -> None:
        """Whoever watches from an older version gets 410."""
        with self._changed:
            self._events.clear()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        api = self.api
        query = {key: values[0] for key, values in parse_qs(urlparse(self.path).query).items()}
        watching = query.get("watch") == "True" or query.get("watch") == "true"
        api.requests["watch" if watching else "list"] += 1
        fault = api.faults.pop(0) if api.faults else None
        if callable(fault):
            fault = fault()
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.refuse(401, "Unauthorized")
        if api.forbidden:
            return self.refuse(403, "Forbidden")
        if fault == "slow":
            time.sleep(3)
        elif fault == "cut":
            return self.cut()
        elif fault:
            return self.refuse(fault, "a fault on order", {"Retry-After": "0"} if fault == 429 else {})
        job = query["labelSelector"].partition("=")[2]
        return self.watch(int(query["resourceVersion"]), job, float(query["timeoutSeconds"])) if watching else self.list(job)

    def cut(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def refuse(self, status: int, reason: str, headers=None):
        self.answer(status, {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": reason}, headers)

    def answer(self, status: int, document: dict, headers=None):
        body = json.dumps(document).encode()
        self.api.bytes += len(body)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def list(self, job: str):
        api = self.api
        with api._changed:
            items = [pod for pod in api.pods.values() if pod["metadata"]["labels"]["job-name"] == job]
            self.answer(200, {"kind": "PodList", "metadata": {"resourceVersion": str(api._version)}, "items": items})

    def watch(self, version: int, job: str, seconds: float):
        api = self.api
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        me, deadline = object(), time.monotonic() + seconds
        with api._changed:
            api._watches.add(me)
            gone = version < api._version and (not api._events or api._events[0][0] > version + 1)
        try:
            if gone:
                status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
                self.chunk({"type": "ERROR", "object": status})
                return
            while time.monotonic() < deadline:
                with api._changed:
                    if me not in api._watches:
                        return self.cut()
                    new = [event for event in api._events if event[0] > version]
                    if not new:
                        api._changed.wait(0.2)
                for number, kind, document in new:
                    version = number
                    if document["metadata"]["labels"]["job-name"] == job:
                        self.chunk({"type": kind, "object": document})
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def chunk(self, event: dict):
        line = json.dumps(event).encode() + b"\n"
        self.api.bytes += len(line)
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()
