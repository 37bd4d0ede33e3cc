"""Machines boot with the user data that the stacks render and the files that a deploy would upload: both sides meet here."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

os.environ.setdefault("CDK_VALIDATION", "false")
os.environ["JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"] = "20"

import pytest
import yaml
from machine import NODE_TOKEN, PROJECT, SERVER_TOKEN, VERSION, Account, Machine

pytestmark = pytest.mark.slow

LIMIT = 16384
ACCOUNT_ID, REGION, ADDRESS = "123456789012", "us-west-2", "172.20.0.9"


@pytest.fixture
def templates(account: Account, tmp_path: Path) -> dict[str, dict[str, Any]]:
    """A self-managed cluster's templates by stack; what a deploy would upload is in the account's bucket."""
    from aws_cdk import App

    from stacks.build import build
    from stacks.cluster_spec import ClusterSpec

    os.environ["PATH"] = f"{PROJECT / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"
    cache = tmp_path / "cache" / VERSION
    cache.mkdir(parents=True)
    files = {}
    for name, key in (("k3s", "k3s"), ("k3s-airgap-images-amd64.tar.zst", "images")):
        shutil.copy(account.folder / "bucket/assets" / key, cache / name)
        content = (cache / name).read_bytes()
        files[name] = {"url": f"https://x/{name}", "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    images = {name: f"public.ecr.aws/x/{name}:v1" for name in ("efs-csi-driver", "node-driver-registrar", "liveness-probe")}
    lock = {"read": "2026-11-21", "source": "a test", "distribution": "k3s", "version": VERSION, "files": files, "images": images}
    (tmp_path / "lock.json").write_text(json.dumps(lock))

    cluster = {
        "kind": "self-managed",
        "elastic_ip": True,
        "public_access_from": ["203.0.113.9/32"],
        "distribution": {"lock": str(tmp_path / "lock.json"), "files": str(tmp_path / "cache")},
    }
    network = {"cidr": "172.20.0.0/16", "availability_zones": ["us-west-2a"]}
    settings = {"retain": False, "network": network, "cluster": cluster}
    app = App(context=json.loads((PROJECT / "cdk.json").read_text())["context"], analytics_reporting=False)
    build(app, ClusterSpec.model_validate(settings))
    assembly = app.synth()
    for manifest in Path(assembly.directory).glob("*.assets.json"):
        for asset in json.loads(manifest.read_text())["files"].values():
            for place in asset["destinations"].values():
                bucket = place["bucketName"].replace("${AWS::AccountId}", ACCOUNT_ID).replace("${AWS::Region}", REGION)
                target = account.folder / "bucket" / bucket / place["objectKey"]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(assembly.directory, asset["source"]["path"]), target)
    return {stack.stack_name.removeprefix("paddle-"): stack.template for stack in assembly.stacks}


def resolved(value: Any, template: dict[str, Any], account: Account) -> str:
    """What CloudFormation makes of it: resources' ids are their names, but for the one volume that there is."""
    match value:
        case str():
            return value
        case {"Fn::Join": [between, parts]}:
            return str(between).join(resolved(part, template, account) for part in parts)
        case {"Fn::Sub": str(text)}:
            return text.replace("${AWS::AccountId}", ACCOUNT_ID).replace("${AWS::Region}", REGION)
        case {"Ref": "AWS::Region"}:
            return REGION
        case {"Ref": "AWS::AccountId"}:
            return ACCOUNT_ID
        case {"Ref": "AWS::StackName"}:
            return "a-stack"
        case {"Ref": name} if template["Resources"][name]["Type"] == "AWS::EC2::Volume":
            return account.volume
        case {"Ref": name}:
            return str(name)
        case {"Fn::GetAtt": [name, "PrimaryPrivateIpAddress"]}:
            return ADDRESS
        case {"Fn::GetAtt": [name, "PublicIp"]}:
            return "203.0.113.7"
        case {"Fn::GetAtt": [name, _]}:
            return str(name)
        # From another stack: the name of what it exports ends with the resource's own.
        case {"Fn::ImportValue": name}:
            return str(name)
    raise AssertionError(value)


def user_data(template: dict[str, Any], account: Account) -> tuple[str, dict[str, str]]:
    """The launch template's user data as EC2 gets it, and the variables in it."""
    (launch,) = [each for each in template["Resources"].values() if each["Type"] == "AWS::EC2::LaunchTemplate"]
    text = resolved(launch["Properties"]["LaunchTemplateData"]["UserData"]["Fn::Base64"], template, account)
    assert len(text.encode()) < LIMIT and len(base64.b64encode(text.encode())) < LIMIT * 4 / 3
    return text, variables(text)


def variables(text: str) -> dict[str, str]:
    """What a shell makes of the environment's lines."""
    head = text.split("END_OF_ENVIRONMENT'\n")[1].split("\nEND_OF_ENVIRONMENT")[0]
    names = head.split("'\n")
    return {name.partition("='")[0]: name.partition("='")[2].rstrip("'") for name in names}


def known_to_the_readme(given: dict[str, str]) -> None:
    """Each variable has a row of its own, for this role."""
    readme = (PROJECT / "constructs_lib/k3s/bootstrap/README.md").read_text()
    for name in given:
        (row,) = [line for line in readme.splitlines() if line.startswith("|") and f"`{name}`" in line.split("|")[1]]
        assert row.split("|")[2].strip() in ("both", given["ROLE"]), name


def boot(machine: Machine, text: str) -> str:
    (machine.root / "user-data").write_text(text)
    done = machine.run("/bin/bash", "/user-data")
    assert done.code == 0, done.console
    return done.sentence


def test_control_plane_and_node(templates: dict[str, dict[str, Any]], account: Account, tmp_path: Path) -> None:
    text, given = user_data(templates["cluster"], account)
    known_to_the_readme(given)
    account.set(secrets={given["SERVER_TOKEN_SECRET"]: SERVER_TOKEN, given["NODE_TOKEN_SECRET"]: NODE_TOKEN})
    first = Machine(account, tmp_path / "first", "i-0000000000000000a", "control-plane")
    first.metadata["local-ipv4"] = given["PRIVATE_ADDRESS"]

    assert boot(first, text) == f"paddle's control plane is ready at {given['ENDPOINT']} ({VERSION})"
    assert {given[name] for name in ("CA_HASH_SECRET", "KUBECONFIG_SECRET", "TRAINER_KUBECONFIG_SECRET")} <= set(
        account.state["secrets"]
    )
    config = yaml.safe_load(first.file("/etc/rancher/k3s/config.yaml").read_text())
    endpoint = given["ENDPOINT"].removeprefix("https://").removesuffix(":6443")
    assert {given["PRIVATE_ADDRESS"], "paddle", "api.paddle", endpoint} == set(config["tls-san"])
    assert account.state["signals"] == [[given["SIGNAL_RESOURCE"], first.instance, "SUCCESS"]]
    assert given["SIGNAL_RESOURCE"] in templates["cluster"]["Resources"]

    text, joined = user_data(templates["nodes"], account)
    known_to_the_readme(joined)
    assert joined["SIGNAL_RESOURCE"] in templates["nodes"]["Resources"]
    secrets = account.state["secrets"]
    account.set(
        secrets=secrets | {joined["NODE_TOKEN_SECRET"]: NODE_TOKEN, joined["CA_HASH_SECRET"]: hashlib.sha256(b"CA").hexdigest()}
    )
    node = Machine(account, tmp_path / "node", "i-000000000000000c0", "node")
    node.shown_ca = "CA"
    # The template names the control plane by what its stack exports.
    text = text.replace(joined["SERVER_URL"], f"https://{ADDRESS}:6443")
    assert boot(node, text) == f"{node.instance} is a node of paddle ({VERSION})"
    assert "eks.amazonaws.com/capacityType" in node.file("/etc/rancher/k3s/config.yaml").read_text()
