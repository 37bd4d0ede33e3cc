"""Runs one boot of a machine under test in its own mount and network namespaces; `machine.py` calls
it through unshare.

What is real: the shell, mkfs, blkid, e2fsck, resize2fs, mount on a loop device, curl, sha256sum,
and instance metadata over HTTP at its own address. Limits: the kernel, /usr and the loop device are
the test machine's; AWS, k3s and systemd are recorders (recorders/*.py); there is no cloud-init, but
the user data runs as cloud-init would run it.
"""

import http.server
import json
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

METADATA_TOKEN = "a-session-of-the-metadata-service"


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


def bind(source: str | Path, target: Path, *options: str) -> None:
    target.mkdir(parents=True, exist_ok=True)
    run("mount", "--rbind", source, target)
    if options:
        run("mount", "-o", ",".join(("remount", "bind", *options)), target)


def build(root: Path, spec: dict) -> None:
    """Builds the machine's root: its own /etc, /var, /opt and /usr/local; the test machine's
    programs, read-only.
    """
    run("mount", "--make-rprivate", "/")
    bind("/usr", root / "usr", "ro")
    bind(spec["local"], root / "usr/local")
    for name in ("bin", "sbin", "lib", "lib64"):
        if not (root / name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    if not (python := spec["python_prefix"]).startswith("/usr"):
        bind(python, root / python.lstrip("/"), "ro")
    bind(spec["account"], root / "account")
    bind(spec["recorders"], root / "recorders", "ro")
    bind("/proc", root / "proc")
    for name in ("dev", "run", "tmp"):
        (root / name).mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", root / name)
    for name, kind, major, minor in (
        ("null", "c", 1, 3),
        ("zero", "c", 1, 5),
        ("random", "c", 1, 8),
        ("urandom", "c", 1, 9),
        (Path(spec["device"]).name, "b", 7, int(spec["device"].removeprefix("/dev/loop"))),
    ):
        run("mknod", "-m", "666", root / "dev" / name, kind, str(major), str(minor))
    (root / "dev/fd").symlink_to("/proc/self/fd")
    (root / "dev/stdin").symlink_to("/proc/self/fd/0")
    if spec["attached"]:
        link = (
            root
            / "dev/disk/by-id"
            / ("nvme-Amazon_Elastic_Block_Store_" + spec["volume"].replace("-", ""))
        )
        link.parent.mkdir(parents=True)
        link.symlink_to(spec["device"])


class Metadata(http.server.BaseHTTPRequestHandler):
    """Instance metadata, version 2 only."""

    answers: ClassVar[dict[str, str]] = {}

    def do_PUT(self) -> None:
        self._say(200, METADATA_TOKEN)

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != METADATA_TOKEN:
            return self._say(401, "")
        answer = self.answers.get(self.path.removeprefix("/latest/meta-data/"))
        self._say(404 if answer is None else 200, answer or "")

    def _say(self, code: int, text: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


class ControlPlane(Metadata):
    """The control plane as a node sees it: it gives its CA to anybody who asks."""

    ca = ""

    def do_GET(self) -> None:
        self._say(200, self.ca)


def serve(handler: type[Metadata], address: str, port: int, certificate: str = "") -> None:
    run("ip", "address", "add", f"{address}/32", "dev", "lo")
    server = http.server.ThreadingHTTPServer((address, port), handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main() -> int:
    spec = json.loads(sys.stdin.read())
    root = Path(spec["root"])
    run("ip", "link", "set", "lo", "up")
    Metadata.answers = spec["metadata"]
    serve(Metadata, "169.254.169.254", 80)
    if spec["shown_ca"]:
        ControlPlane.ca = spec["shown_ca"]
        serve(ControlPlane, "172.20.0.9", 6443, spec["certificate"])
    build(root, spec)
    return subprocess.run(
        [
            "chroot",
            root,
            "/usr/bin/env",
            "-i",
            "PATH=/usr/local/bin:/usr/bin:/usr/sbin",
            *spec["command"],
        ],
        stdin=subprocess.DEVNULL,
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
