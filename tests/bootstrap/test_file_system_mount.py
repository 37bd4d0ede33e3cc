"""A machine mounts the file system before its kubelet starts: its user data's files and the script,
run for real in a machine's own mount namespace.

What is real: the user data of all kinds of nodes, the shell, namespaces and mounts, systemd's
reading of the units. Limits: no systemd runs; amazon-efs-utils is a stand-in that mounts a tmpfs
and leaves a state file in /run/efs, as its mount helper does.
"""

import email
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, ClassVar

import pytest
from built import PROJECT, Built
from machine import missing

from paddle_aws.stacks.cluster_spec import ClusterSpec

pytestmark = pytest.mark.slow

VARIANTS = PROJECT / "tests" / "aws" / "variants"
HERE = Path(__file__).parent


class Nodes(Built):
    """The user data of a variant's groups."""

    names: ClassVar = {
        **Built.names,
        "AWS::EFS::FileSystem": "fs-1",
        "AWS::EFS::AccessPoint": "fsap-1",
        "AWS::EKS::Cluster": "cluster",
    }

    def user_data(self, group: str) -> str:
        for name, template in self.whole("AWS::EC2::LaunchTemplate", "nodes").items():
            if name.startswith(group):
                data = template["Properties"]["LaunchTemplateData"]["UserData"]["Fn::Base64"]
                return str(self.resolved("nodes", data))
        raise KeyError(group)


@pytest.mark.parametrize(
    ("variant", "group", "kubelet", "folder"),
    [
        ("document-003", "workers", "kubelet.service", "/home/work/mfs"),
        ("document-003", "own", "kubelet.service", "/home/work/mfs"),
        ("document-004", "minions", "k3s-agent.service", "/home/admin/efs"),
    ],
)
def test_a_machine_mounts_the_file_system_before_its_kubelet_starts(
    variant: str, group: str, kubelet: str, folder: str, tmp_path: Path
) -> None:
    if reason := missing() or ("" if shutil.which("systemd-analyze") else "no systemd-analyze"):
        pytest.skip(reason)
    text = Nodes(ClusterSpec.load(VARIANTS / f"{variant}.yaml")).user_data(group)
    if text.startswith("MIME-Version"):
        parts = list(email.message_from_string(text).walk())
        [script] = [part for part in parts if part.get_content_type() == "text/x-shellscript"]
        text = str(script.get_payload())
    (tmp_path / "user-data").write_text(text)
    command = ["unshare", "--mount", "bash", HERE / "mount_machine.sh", tmp_path, folder, kubelet]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    seen: dict[str, Any] = json.loads((tmp_path / "seen.json").read_text())
    console = (tmp_path / "console").read_text()
    # The kubelet's unit waits for it, as systemd reads the units.
    assert seen["kubelet needs"] == "paddle-file-system.service"
    # Each failed try is said, and nothing is ready or readable until the mount is there.
    assert re.findall("paddle-cluster: (.*?) \\(see", console) == [
        "amazon-efs-utils could not be installed",
        f"fs-1 could not be mounted at {folder}",
    ]
    assert seen["folder without it"] == "0"
    assert seen["ready"] == "mounted"
    assert seen["helper"] == f"fs-1:/ {folder} -o rw,tls,noresvport,accesspoint=fsap-1"
    # The machine has the mount, and the EFS driver, which reads the machine's /run/efs, sees no
    # state of it.
    assert seen["machine's mounts"] == folder
    assert (seen["machine's /run/efs"], seen["its own /run/efs"]) == ("", "tunnel")
    # A watchdog that ends starts again, beside the same mount.
    assert seen["again"] == "mounted mounted" and seen["mounts made"] == "1"
    assert seen["watchdogs after a stop"] == "0"
