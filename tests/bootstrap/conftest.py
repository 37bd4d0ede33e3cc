"""What the tests of the boot scripts share: an account, a control plane and a node that boot with the stacks' own user data."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("CDK_VALIDATION", "false")
os.environ["JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"] = "20"
sys.path.insert(0, str(Path(__file__).parent))

import pytest
from machine import (
    ACCOUNT_ID,
    CA,
    IMAGES,
    NODE_TOKEN,
    PROJECT,
    REGION,
    VERSION,
    VOLUME,
    Account,
    Machine,
    missing,
    sha256,
)

SETTINGS = {
    "retain": False,
    "network": {"cidr": "172.20.0.0/16", "availability_zones": ["us-west-2a"]},
    "cluster": {"kind": "self-managed", "elastic_ip": True, "public_access_from": ["203.0.113.9/32"]},
    "nodes": {"workers": {"spot": True, "labels": {"pool": "workers"}, "taints": [{"key": "dedicated", "value": "training"}]}},
}


class Rendered:
    """The user data of each role, and the folder of what a deploy would upload."""

    def __init__(self, folder: Path) -> None:
        from aws_cdk import App

        from stacks.build import build
        from stacks.cluster_spec import ClusterSpec

        os.environ["PATH"] = f"{PROJECT / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"
        (folder / VERSION).mkdir()
        content = {"k3s": f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 -IS /recorders/k3s.py "$@"\n', IMAGES: "images"}
        files = {}
        for name, text in content.items():
            (folder / VERSION / name).write_text(text)
            files[name] = {"url": f"https://x/{name}", "sha256": sha256(text.encode()), "size": len(text)}
        images = {name: f"public.ecr.aws/x/{name}:v1" for name in ("efs-csi-driver", "node-driver-registrar", "liveness-probe")}
        lock = {"read": "2026-11-21", "source": "a test", "distribution": "k3s", "version": VERSION, "files": files}
        (folder / "lock.json").write_text(json.dumps(lock | {"images": images}))
        distribution = {"distribution": {"lock": str(folder / "lock.json"), "files": str(folder)}}
        app = App(context=json.loads((PROJECT / "cdk.json").read_text())["context"], analytics_reporting=False)
        build(app, ClusterSpec.model_validate(SETTINGS | {"cluster": SETTINGS["cluster"] | distribution}))
        assembly = app.synth()
        self.bucket = folder / "bucket"
        for manifest in Path(assembly.directory).glob("*.assets.json"):
            for asset in json.loads(manifest.read_text())["files"].values():
                for place in asset["destinations"].values():
                    target = self.bucket / self.resolved({"Fn::Sub": place["bucketName"]}) / place["objectKey"]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(Path(assembly.directory, asset["source"]["path"]), target)
        self.templates = [stack.template for stack in assembly.stacks]
        self.resources = {name: one for template in self.templates for name, one in template.get("Resources", {}).items()}
        templates = [one for one in self.resources.values() if one["Type"] == "AWS::EC2::LaunchTemplate"]
        texts = [self.resolved(one["Properties"]["LaunchTemplateData"]["UserData"]["Fn::Base64"]) for one in templates]
        self.user_data = {re.search(r"^ROLE='(.*)'$", text, re.M)[1]: text for text in texts}

    def resolved(self, value: Any) -> str:
        """What CloudFormation makes of it: resources' ids are their names, but for the one volume and bucket that there are."""
        match value:
            case str():
                return value
            case {"Fn::Join": [between, parts]}:
                return str(between).join(map(self.resolved, parts))
            case {"Fn::Sub": str(text)}:
                return text.replace("${AWS::AccountId}", ACCOUNT_ID).replace("${AWS::Region}", REGION)
            case {"Ref": "AWS::URLSuffix"}:
                return "amazonaws.com"
            case {"Ref": name}:
                one = self.resources[name]
                known = {"AWS::EC2::Volume": VOLUME, "AWS::S3::Bucket": "data"}
                return known.get(one["Type"]) or str(one["Properties"].get("Name", name))
            case {"Fn::GetAtt": [_, "PublicIp"]}:
                return "203.0.113.7"
            case {"Fn::ImportValue": name}:
                outputs = [output for template in self.templates for output in template.get("Outputs", {}).values()]
                return self.resolved(next(output["Value"] for output in outputs if output.get("Export", {}).get("Name") == name))
        raise AssertionError(value)


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    if reason := missing():
        pytest.skip(reason)
    return Rendered(tmp_path_factory.mktemp("rendered"))


@pytest.fixture
def account(rendered: Rendered, tmp_path: Path) -> Iterator[Account]:
    with Account(tmp_path / "account", rendered) as made:
        yield made


@pytest.fixture
def control_plane(account: Account, tmp_path: Path) -> Machine:
    return Machine(account, tmp_path / "first", "i-0000000000000000a", "control-plane")


@pytest.fixture
def successor(account: Account, tmp_path: Path) -> Machine:
    """The machine that takes a terminated control plane's place."""
    return Machine(account, tmp_path / "second", "i-0000000000000000b", "control-plane")


@pytest.fixture
def node(account: Account, tmp_path: Path) -> Machine:
    account.set(secrets={"paddle/node-token": NODE_TOKEN, "paddle/ca-hash": sha256(CA.encode())})
    return Machine(account, tmp_path / "node", "i-000000000000000c0", "node")
