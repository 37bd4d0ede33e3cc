"""Machines that boot with our real scripts, and the account that they boot in.

A `Machine` keeps its disk between boots and loses its memory, as a real one does; the state volume
is a file behind a loop device that outlives machines. `inside.py` says what is real and what is
not.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).parents[2]
SCRIPTS = PROJECT / "constructs_lib/k3s/bootstrap"
HERE = Path(__file__).parent
K3S_SETTINGS = yaml.safe_load((HERE / "k3s_settings.yaml").read_text())

SERVER_TOKEN = "S3rverT0ken" * 4
NODE_TOKEN = "N0deT0ken" * 4
VERSION = "v1.35.2+k3s1"
ACCOUNT_ID, REGION, ADDRESS = "123456789012", "us-west-2", "172.20.0.9"
VOLUME = "vol-0123456789abcdef0"
IMAGES = "k3s-airgap-images-amd64.tar.zst"
CA = "the cluster's CA"
TOOLS = (
    "unshare",
    "ip",
    "mkfs.ext4",
    "blkid",
    "e2fsck",
    "resize2fs",
    "losetup",
    "curl",
    "mknod",
    "debugfs",
)


def missing() -> str:
    """Returns why no machine can boot here, or an empty string if one can."""
    if os.getuid() != 0:
        return "mounting and namespaces want root"
    absent = [
        name
        for name in TOOLS
        if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None
    ]
    if absent:
        return f"{', '.join(absent)} not installed"
    done = subprocess.run(["losetup", "-f"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "no loop device can be had here"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Boot:
    """The result of one boot."""

    code: int
    console: str

    @property
    def sentence(self) -> str:
        """The last sentence that the boot scripts printed."""
        sentences = [
            line for line in self.console.splitlines() if line.startswith("paddle-cluster: ")
        ]
        return sentences[-1].removeprefix("paddle-cluster: ") if sentences else ""


class Account:
    """What machines share: a bucket, secrets and one volume."""

    def __init__(self, folder: Path, rendered: Any) -> None:
        self.folder, self.user_data = folder, rendered.user_data
        shutil.copytree(rendered.bucket, folder / "bucket")
        self.image = folder / "volume.img"
        with self.image.open("wb") as file:
            file.truncate(16 << 20)
        attached = subprocess.run(
            ["losetup", "-f", "--show", self.image], capture_output=True, text=True, check=True
        )
        self.device = attached.stdout.strip()
        self.set(
            secrets={"paddle/server-token": SERVER_TOKEN, "paddle/node-token": NODE_TOKEN},
            volume={
                "id": VOLUME,
                "state": "available",
                "holder": "None",
                "then": [],
                "device": self.device,
            },
            instances=[],
            signals=[],
        )

    def __enter__(self) -> "Account":
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["losetup", "-d", self.device], check=False)

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "state.json").read_text()))

    def set(self, **values: Any) -> None:
        """Updates the account's state."""
        path = self.folder / "state.json"
        path.write_text(json.dumps((self.state if path.exists() else {}) | values))

    def volume_is(
        self, state: str, holder: str = "None", then: Sequence[tuple[str, str]] = ()
    ) -> None:
        self.set(
            volume=self.state["volume"] | {"state": state, "holder": holder, "then": list(then)}
        )

    def asset(self, path: str) -> Path:
        """Returns the bucket's copy of one of the control plane's files."""
        key = re.search(rf"{path} s3://(\S+)", self.user_data["control-plane"])[1]
        return self.folder / "bucket" / key

    def called(self, *words: str) -> int:
        """Returns how often a recorded program was called with all of `words`."""
        calls = [
            json.loads(line)["argv"] for line in (self.folder / "calls").read_text().splitlines()
        ]
        return sum(all(word in call for word in words) for call in calls)

    def written_down(self) -> str:
        """Returns the arguments and environment of every recorded process."""
        return (self.folder / "calls").read_text()

    def on_the_volume(self, command: str) -> str:
        """Returns debugfs's answer about the state volume, read from outside the machine."""
        done = subprocess.run(
            ["debugfs", "-R", command, self.image], capture_output=True, text=True, check=True
        )
        return done.stdout


class Machine:
    """One EC2 instance; `settings` override its variables."""

    def __init__(
        self, account: Account, folder: Path, instance: str, role: str, **settings: str
    ) -> None:
        self.account, self.instance, self.role = account, instance, role
        self.root, self.local = folder / "root", folder / "local"
        (self.local / "bin").mkdir(parents=True)
        for name in ("etc", "var/lib/cloud/data", "opt"):
            (self.root / name).mkdir(parents=True)
        for name in (
            "passwd",
            "group",
            "nsswitch.conf",
            "ld.so.cache",
            "mke2fs.conf",
            "e2scrub.conf",
            "alternatives",
            "ssl/certs",
        ):
            if (given := Path("/etc", name)).exists():
                (self.root / "etc" / name).parent.mkdir(exist_ok=True)
                subprocess.run(
                    ["cp", "-r", "--no-dereference", given, self.root / "etc" / name], check=True
                )
        (self.root / "etc/fstab").write_text("LABEL=root / xfs defaults 0 0\n")
        (self.root / "var/lib/cloud/data/instance-id").write_text(f"{instance}\n")
        for name in ("aws", "systemctl", "dnf", "journalctl", "udevadm"):
            recorder = "aws" if name == "aws" else "systemctl"
            path = self.local / "bin" / name
            path.write_text(
                f"#!/bin/sh\nexec {sys.base_prefix}/bin/python3 -IS /recorders/{recorder}.py "
                f'{name} "$@"\n'
            )
            path.chmod(0o755)
        (self.local / "bin/python3").symlink_to(f"{sys.base_prefix}/bin/python3")
        self.metadata = {"instance-type": "m5.large", "placement/availability-zone": "us-west-2a"}
        self.shown_ca = CA if role == "node" else ""
        self.settings = {"DEADLINE_SECONDS": "20", "POLL_SECONDS": "0.05"} | settings

    def first_boot(self) -> Boot:
        """Runs the boot in which cloud-init runs the user data, and systemd runs what the user data
        starts.
        """
        settings = "".join(f"\n{name}='{value}'" for name, value in self.settings.items())
        user_data = self.account.user_data[self.role].replace(
            "\nEND_OF_FILE", f"{settings}\nEND_OF_FILE", 1
        )
        (self.root / "user-data").write_text(user_data)
        return self.run(
            "/bin/bash", "-c", "/bin/bash /user-data && exec /opt/paddle-cluster/boot.sh"
        )

    def reboot(self) -> Boot:
        """Runs a later boot, or systemd's retry of a failed one: memory is lost, which a real
        machine keeps on a retry.
        """
        return self.run("/opt/paddle-cluster/boot.sh")

    def by_hand(self, command: str) -> Boot:
        """Runs an operator's command while the state is mounted and k3s runs."""
        state = "/var/lib/rancher/k3s/server"
        return self.run(
            "/bin/bash",
            "-c",
            f"mkdir -p {state}; mount $(readlink /dev/disk/by-id/*) {state}; touch "
            f"/run/k3s-runs; {command}",
        )

    def run(self, *command: str) -> Boot:
        """Runs a boot that consists of just this command."""
        volume = self.account.state["volume"]
        spec = {
            "root": str(self.root),
            "local": str(self.local),
            "account": str(self.account.folder),
            "recorders": str(HERE / "recorders"),
            "python_prefix": sys.base_prefix,
            "device": self.account.device,
            "volume": volume["id"],
            "attached": volume["holder"] == self.instance,
            "metadata": self.metadata,
            "shown_ca": self.shown_ca,
            "certificate": str(HERE.parent / "node/certificates/server.pem"),
            "command": list(command),
        }
        unshare = [
            "unshare",
            "--mount",
            "--net",
            f"{sys.base_prefix}/bin/python3",
            HERE / "inside.py",
        ]
        done = subprocess.run(
            unshare, input=json.dumps(spec), capture_output=True, text=True, check=False
        )
        return Boot(done.returncode, done.stdout + done.stderr)

    def file(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def k3s_settings(self) -> dict[str, Any]:
        """Returns the settings as k3s reads them: file, then folder; a key with a plus appends.
        Each must be a k3s option.
        """
        settings: dict[str, Any] = {}
        folder = self.file("/etc/rancher/k3s")
        for path in (folder / "config.yaml", *sorted((folder / "config.yaml.d").iterdir())):
            for key, value in yaml.safe_load(path.read_text()).items():
                settings[key.rstrip("+")] = (
                    settings.get(key.rstrip("+"), []) + value if key.endswith("+") else value
                )
        options = yaml.safe_load((HERE / "k3s_options.yaml").read_text())
        assert set(settings) <= set(options["server" if self.role == "control-plane" else "agent"])
        return settings
