"""What the tests of the boot scripts share: an account, a control plane and a node that boot with
the stacks' own user data.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "aws"))

import pytest
import yaml
from built import NAMES, Built
from machine import (
    ACCOUNT_ID,
    ADDRESS,
    CA,
    IMAGES,
    NODE_TOKEN,
    VERSION,
    VOLUME,
    Account,
    Machine,
    missing,
    sha256,
)

from paddle_aws.stacks.cluster_spec import ClusterSpec

SETTINGS = yaml.safe_load(Path(__file__).with_name("cluster.yaml").read_text())


class Rendered(Built):
    """The user data of each role, and a folder with what a deploy would upload."""

    account: ClassVar = ACCOUNT_ID
    names: ClassVar = {
        **NAMES,
        "AWS::EC2::EIP": "203.0.113.7",
        "AWS::EC2::NetworkInterface": ADDRESS,
        "AWS::EC2::Volume": VOLUME,
        "AWS::S3::Bucket": "data",
        "AWS::SecretsManager::Secret": "{}",
    }

    def __init__(self, folder: Path) -> None:
        (folder / VERSION).mkdir()
        content = {
            "k3s": f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 -IS /recorders/k3s.py "$@"\n',
            IMAGES: "images",
        }
        files = {}
        for name, text in content.items():
            (folder / VERSION / name).write_text(text)
            files[name] = {
                "url": f"https://x/{name}",
                "sha256": sha256(text.encode()),
                "size": len(text),
            }
        images = {
            name: f"public.ecr.aws/x/{name}:v1"
            for name in ("efs-csi-driver", "node-driver-registrar", "liveness-probe")
        }
        lock = {
            "read": "2026-11-21",
            "source": "a test",
            "distribution": "k3s",
            "version": VERSION,
            "files": files,
        }
        (folder / "lock.json").write_text(json.dumps(lock | {"images": images}))
        distribution = {"distribution": {"lock": str(folder / "lock.json"), "files": str(folder)}}
        super().__init__(
            ClusterSpec.model_validate(SETTINGS | {"cluster": SETTINGS["cluster"] | distribution})
        )
        self.bucket = folder / "bucket"
        directory = Path(self.assembly.directory)
        for manifest in directory.glob("*.assets.json"):
            for asset in json.loads(manifest.read_text())["files"].values():
                for place in asset["destinations"].values():
                    target = (
                        self.bucket
                        / self.resolved("cluster", {"Fn::Sub": place["bucketName"]})
                        / place["objectKey"]
                    )
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(directory / asset["source"]["path"], target)
        self.user_data = {}
        for stack in ("cluster", "nodes"):
            for template in self.resources("AWS::EC2::LaunchTemplate", stack):
                text = self.resolved(
                    stack, template["LaunchTemplateData"]["UserData"]["Fn::Base64"]
                )
                self.user_data[re.search(r"^ROLE='(.*)'$", text, re.M)[1]] = text


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    if reason := missing():
        pytest.skip(reason)
    return Rendered(tmp_path_factory.mktemp("rendered"))


@pytest.fixture
def account(rendered: Rendered, tmp_path: Path) -> Iterator[Account]:
    with Account(tmp_path / "account", rendered) as account:
        yield account


@pytest.fixture
def control_plane(account: Account, tmp_path: Path) -> Machine:
    return Machine(account, tmp_path / "first", "i-0000000000000000a", "control-plane")


@pytest.fixture
def successor(account: Account, tmp_path: Path) -> Machine:
    """The machine that replaces a terminated control plane."""
    return Machine(account, tmp_path / "second", "i-0000000000000000b", "control-plane")


@pytest.fixture
def node(account: Account, tmp_path: Path) -> Machine:
    account.set(secrets={"paddle/node-token": NODE_TOKEN, "paddle/ca-hash": sha256(CA.encode())})
    return Machine(account, tmp_path / "node", "i-000000000000000c0", "node")
