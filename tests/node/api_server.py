"""The tests' Kubernetes API over real HTTPS, with watches: the pods of one namespace, selected by
their Job's name.
"""

import json
import socket
import ssl
import time
from pathlib import Path

import kubernetes_api

CERTIFICATES = Path(__file__).with_name("certificates")
TOKEN = "a-token"


class _Handler(kubernetes_api._Handler):
    def _answer(self, path: str) -> None:
        if "watch" not in self.query:
            return super()._answer(path)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        self.api.watches.append(self.connection)
        version, deadline = (
            int(self.query["resourceVersion"]),
            time.monotonic() + float(self.query["timeoutSeconds"]),
        )
        while (
            time.monotonic() < deadline
        ):  # Or until the connection is cut, because then sending fails.
            for kind, document in self.api.events[version - 1 :]:
                version += 1
                if kind == "ERROR" or self._chosen(document):
                    line = json.dumps({"type": kind, "object": document}).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                    self.wfile.flush()
            time.sleep(0.02)
        self.wfile.write(b"0\r\n\r\n")
        return None


class ApiServer(kubernetes_api.KubernetesApi):
    handler = _Handler

    def __init__(self) -> None:
        super().__init__()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(CERTIFICATES / "server.pem")
        self.tokens = {TOKEN}
        self.events: list[tuple[str, dict]] = []
        self.watches: list[socket.socket] = []

    @property
    def environment(self) -> dict[str, str]:
        return {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": self.url.rpartition(":")[2],
        }

    def lay_account(self, root: Path, authority: str = "ca.pem") -> None:
        """Writes the service account that the kubelet mounts into a pod."""
        account = root / "var/run/secrets/kubernetes.io/serviceaccount"
        account.mkdir(parents=True, exist_ok=True)
        (account / "token").write_text(TOKEN)
        (account / "ca.crt").write_bytes((CERTIFICATES / authority).read_bytes())

    def put_pod(
        self,
        name: str,
        address: str = "",
        phase: str = "Running",
        job: str = "job",
        uid: str = "run-1",
        **more,
    ) -> None:
        self.version += 1
        metadata = {
            "name": name,
            "namespace": "default",
            "labels": {"job-name": job},
            "resourceVersion": str(self.version),
        }
        metadata |= {
            "ownerReferences": [{"kind": "Job", "uid": uid, "controller": True}],
            **more.get("metadata", {}),
        }
        status = {"phase": phase, "podIP": address, **more.get("status", {})}
        self.events.append(
            (
                "MODIFIED",
                self.put(
                    {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}
                ),
            )
        )

    def forget(self) -> None:
        """Expires all versions so far: a watch from one of them ends with 410."""
        self.version += 1
        self.events.append(("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))

    def cut_watches(self) -> None:
        for connection in self.watches:
            connection.shutdown(socket.SHUT_RDWR)

    def asked(self, *, watch: bool) -> int:
        """Returns how many watches, or lists, were requested."""
        return sum(("watch=true" in path) is watch for _, path in self.requests)
