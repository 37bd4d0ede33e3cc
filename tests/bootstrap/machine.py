"""Machines that boot with our real scripts, and the account that they boot in.

A `Machine` keeps its disk between boots and loses its memory, as a real one does; the state volume is a file behind a loop
device that outlives machines. `inside.py` says what is real and what is not.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
SCRIPTS = PROJECT / "constructs_lib/k3s/bootstrap"
HERE = Path(__file__).parent
RECORDERS = HERE / "recorders"

SERVER_TOKEN = "S3rverT0ken" * 4
NODE_TOKEN = "N0deT0ken" * 4
VERSION = "v1.35.2+k3s1"
ADDRESS = "172.20.0.9"
TOOLS = ("unshare", "ip", "mkfs.ext4", "blkid", "e2fsck", "resize2fs", "losetup", "curl", "mknod", "debugfs")


def missing() -> str:
    """Why no machine can be booted here; empty when one can."""
    if os.getuid() != 0:
        return "mounting and namespaces want root"
    absent = [name for name in TOOLS if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None]
    if absent:
        return f"{', '.join(absent)} not installed"
    done = subprocess.run(["losetup", "-f"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "no loop device can be had here"


@dataclass(frozen=True)
class Boot:
    """What one boot did."""

    code: int
    console: str

    @property
    def sentence(self) -> str:
        """The last thing that was said."""
        said = [line for line in self.console.splitlines() if line.startswith("paddle-cluster: ")]
        return said[-1].removeprefix("paddle-cluster: ") if said else ""


class Account:
    """Bucket, secrets, one volume: what machines share."""

    volume = "vol-0123456789abcdef0"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bucket/assets").mkdir(parents=True)
        image = folder / "volume.img"
        with image.open("wb") as file:
            file.truncate(16 << 20)
        self.device = subprocess.run(
            ["losetup", "-f", "--show", image], capture_output=True, text=True, check=True
        ).stdout.strip()
        self.set(
            secrets={"server-token": SERVER_TOKEN, "node-token": NODE_TOKEN},
            volume={"id": self.volume, "state": "available", "holder": "None", "then": [], "device": self.device},
            instances=[],
            signals=[],
        )
        k3s = f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 -IS /recorders/k3s.py "$@"\n'
        self.files = {
            "k3s": self.upload("k3s", k3s.encode()),
            "k3s-airgap-images-amd64.tar.zst": self.upload("images", b"images"),
        }
        for path in (*SCRIPTS.glob("*.sh"), *SCRIPTS.glob("manifests/*.yaml"), SCRIPTS / "ecr-credentials"):
            self.files[path.name] = self.upload(path.name, path.read_bytes())

    def close(self) -> None:
        subprocess.run(["losetup", "-d", self.device], check=False)

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "state.json").read_text()))

    def set(self, **values: Any) -> None:
        """Changes what the account knows."""
        path = self.folder / "state.json"
        path.write_text(json.dumps((self.state if path.exists() else {}) | values))

    def volume_is(self, state: str, holder: str = "None", then: Sequence[tuple[str, str]] = ()) -> None:
        self.set(volume=self.state["volume"] | {"state": state, "holder": holder, "then": list(then)})

    def upload(self, key: str, content: bytes) -> tuple[str, str]:
        """Puts a file in the bucket; its address and SHA-256."""
        (self.folder / "bucket/assets" / key).write_bytes(content)
        return f"s3://assets/{key}", hashlib.sha256(content).hexdigest()

    def calls(self) -> list[list[str]]:
        """What the AWS CLI was called with, so far."""
        return [each["argv"][1:] for each in self._lines("calls.jsonl")]

    def called(self, *words: str) -> int:
        """How often."""
        return sum(all(word in call for word in words) for call in self.calls())

    def written_down(self) -> str:
        """Everything that any process was started with: arguments and environment."""
        return "".join(
            (self.folder / name).read_text()
            for name in ("calls.jsonl", "k3s.jsonl", "systemctl", "quiet")
            if (self.folder / name).exists()
        )

    def _lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Machine:
    """One EC2 instance."""

    def __init__(self, account: Account, folder: Path, instance: str, role: str, **settings: str) -> None:
        self.account, self.instance = account, instance
        self.root, self.local = folder / "root", folder / "local"
        (self.local / "bin").mkdir(parents=True)
        for name in ("etc", "var/lib/cloud/data", "opt"):
            (self.root / name).mkdir(parents=True)
        for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache", "mke2fs.conf", "e2scrub.conf"):
            if Path("/etc", name).exists():
                shutil.copy(Path("/etc", name), self.root / "etc" / name)
        for name in ("alternatives", "ssl"):
            if Path("/etc", name).exists():
                shutil.copytree(
                    Path("/etc", name), self.root / "etc" / name, symlinks=True, ignore=shutil.ignore_patterns("private")
                )
        (self.root / "etc/fstab").write_text("LABEL=root / xfs defaults 0 0\n")
        (self.root / "var/lib/cloud/data/instance-id").write_text(f"{instance}\n")
        for name in ("aws", "systemctl"):
            self._program(name, f"/recorders/{name}.py")
        for name in ("modprobe", "sysctl", "dnf", "journalctl", "udevadm"):
            self._program(name, f"/recorders/quiet.py {name}")
        self.metadata = {
            "instance-id": instance,
            "instance-type": "m5.large",
            "placement/availability-zone": "us-west-2a",
            "local-ipv4": ADDRESS if role == "control-plane" else "172.20.0.77",
        }
        self.shown_ca = ""
        self.environment = environment(account, role) | settings

    def _program(self, name: str, command: str) -> None:
        path = self.local / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 -IS {command} "$@"\n')
        path.chmod(0o755)

    def user_data(self) -> str:
        """As the launch template has it."""
        lines = "".join(f"{name}='{value}'\n" for name, value in self.environment.items())
        head = f"#!/bin/bash\ninstall -d /etc/paddle-cluster\ncat >/etc/paddle-cluster/environment <<'END'\n{lines}END\n"
        return head + (SCRIPTS / "user-data.sh").read_text()

    def first_boot(self) -> Boot:
        """The boot at which cloud-init runs the user data."""
        (self.root / "user-data").write_text(self.user_data())
        return self.run("/bin/bash", "/user-data")

    def reboot(self) -> Boot:
        """Any later boot: what the enabled unit runs."""
        unit = (self.root / "etc/systemd/system/paddle-cluster.service").read_text()
        command = next(line for line in unit.splitlines() if line.startswith("ExecStart=")).removeprefix("ExecStart=")
        return self.run(command)

    def retry(self) -> Boot:
        """What systemd does after a boot that failed, if that asked for it: its memory is lost, too, which a real one keeps."""
        self.file("/var/boot-to-retry").unlink()
        assert "\nRestart=on-failure\n" in self.file("/etc/systemd/system/paddle-cluster.service").read_text()
        return self.reboot()

    def run(self, *command: str) -> Boot:
        """A boot that runs just this command."""
        volume = self.account.state["volume"]
        spec = {
            "root": str(self.root),
            "local": str(self.local),
            "account": str(self.account.folder),
            "recorders": str(RECORDERS),
            "python_prefix": sys.base_prefix,
            "device": self.account.device,
            "volume": volume["id"],
            "attached": volume["holder"] == self.instance,
            "metadata": self.metadata,
            "shown_ca": self.shown_ca,
            "certificate": str(HERE.parent / "node/certificates/server.pem"),
            "command": list(command),
        }
        done = subprocess.run(
            ["unshare", "--mount", "--net", f"{sys.base_prefix}/bin/python3", HERE / "inside.py"],
            input=json.dumps(spec),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        return Boot(done.returncode, done.stdout + done.stderr)

    def file(self, path: str) -> Path:
        return self.root / path.lstrip("/")


def environment(account: Account, role: str) -> Mapping[str, str]:
    """The variables of constructs_lib/k3s/bootstrap/README.md."""
    names = {
        "control-plane": ("shared.sh", "control-plane.sh", "restore.sh", "forget-nodes.sh", "efs-csi-driver.yaml", "people.yaml"),
        "node": ("shared.sh", "node.sh"),
    }[role]
    both = ("ecr-credentials", "k3s", "k3s-airgap-images-amd64.tar.zst")
    files = "\n".join(f"{name} {' '.join(account.files[name])}" for name in (*names, *both))
    common = {
        "ROLE": role,
        "CLUSTER_NAME": "paddle",
        "AWS_REGION": "us-west-2",
        "FILES": files,
        "SIGNAL_STACK": "paddle-cluster",
        "SIGNAL_RESOURCE": "Group",
        "DEADLINE_SECONDS": "20",
        "POLL_SECONDS": "0.05",
        "DISTRIBUTION_VERSION": VERSION,
        "NODE_TOKEN_SECRET": "node-token",
        "CA_HASH_SECRET": "ca-hash",
    }
    if role == "node":
        return common | {
            "SERVER_URL": f"https://{ADDRESS}:6443",
            "NODE_LABELS": "pool=workers eks.amazonaws.com/capacityType=SPOT",
            "NODE_TAINTS": "dedicated=training:NoSchedule",
        }
    return common | {
        "STATE_VOLUME": account.volume,
        "PRIVATE_ADDRESS": ADDRESS,
        "ALTERNATE_NAMES": f"{ADDRESS} paddle api.paddle 203.0.113.7",
        "ENDPOINT": "https://203.0.113.7:6443",
        "SERVER_TOKEN_SECRET": "server-token",
        "KUBECONFIG_SECRET": "kubeconfig",
        "TRAINER_KUBECONFIG_SECRET": "kubeconfig-trainer",
        "READER_KUBECONFIG_SECRET": "kubeconfig-reader",
        "JOBS_NAMESPACE": "paddle",
        "SNAPSHOT_BUCKET": "data",
        "SNAPSHOT_PREFIX": "cluster/snapshots",
        "SNAPSHOT_SCHEDULE": "0 */6 * * *",
        "SNAPSHOT_RETENTION": "28",
        "POD_CIDR": "10.42.0.0/16",
        "SERVICE_CIDR": "10.43.0.0/16",
        "IMAGES": "efs-csi-driver public.ecr.aws/efs/driver:v1\nnode-driver-registrar public.ecr.aws/csi/registrar:v1\n"
        "liveness-probe public.ecr.aws/csi/liveness:v1",
    }
