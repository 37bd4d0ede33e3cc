"""`lock add-ons`, and what the stacks make of its file.

No emulator has the call: the test answers in the shape of EKS's reference, two pages an add-on.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from aws_api import AwsApi, Parameters
from commands import Run

from settings.errors import SettingError
from stacks.build import locked_versions
from stacks.cluster_spec import ADDONS, KUBERNETES_VERSIONS, NODE_IMAGES

CONFIG = str(Path(__file__).parents[2] / "cluster.yaml")


def recommended(given: Parameters) -> dict[str, Any]:
    """Parameter Store knows the releases of all images but NVIDIA's of 1.36."""
    known = [name for name in given["Names"] if "/1.36/amazon-linux-2023/x86_64/nvidia/" not in name]
    assert all(name.endswith("/recommended/release_version") for name in known)
    return {"Parameters": [{"Name": name, "Value": f"{name.split('/')[5]}.0-20261101"} for name in known]}


def eks(api: AwsApi, unnamed: Collection[str] = ()) -> None:
    """EKS's answer of two pages an add-on; those in `unnamed` have no default version."""
    for kubernetes in KUBERNETES_VERSIONS:
        for name in ADDONS:
            path = f"/addons/supported-versions?addonName={name}&kubernetesVersion={kubernetes}"
            for number, page in ((2, path), (1, f"{path}&nextToken=more")):
                version = {
                    "addonVersion": f"v1.0.{kubernetes.partition('.')[2]}-eksbuild.{number}",
                    "compatibilities": [
                        {"clusterVersion": kubernetes, "defaultVersion": number == 1 and name not in unnamed},
                        {"clusterVersion": "1.0", "defaultVersion": True},
                    ],
                }
                more = {"nextToken": "more"} if number == 2 else {}
                api.rest[page] = {"addons": [{"addonName": name, "addonVersions": [version]}], **more}
    api.answer("ssm", "GetParameters", recommended)


@pytest.mark.slow
def test_the_default_of_each_add_on_and_version_is_read(run: Run, aws_api: AwsApi, tmp_path: Path) -> None:
    eks(aws_api)
    out = tmp_path / "locks" / "add-ons.json"
    done = run("lock", "add-ons", CONFIG, "--out", str(out))
    assert (done.code, done.out) == (0, ""), done.err
    count = (len(ADDONS) + len(NODE_IMAGES)) * len(KUBERNETES_VERSIONS) - 1
    assert done.err == f"{count} versions are in {out}; EKS names no default of AL2023_x86_64_NVIDIA for 1.36\n"
    lock = json.loads(out.read_text())
    assert (lock["region"], "DescribeAddonVersions" in lock["source"], len(lock["read"])) == ("us-west-2", True, 10)
    for version in KUBERNETES_VERSIONS:
        wanted = f"v1.0.{version.partition('.')[2]}-eksbuild.1"
        images = dict.fromkeys(NODE_IMAGES, f"{version}.0-20261101")
        if version == "1.36":
            del images["AL2023_x86_64_NVIDIA"]
        assert locked_versions(out.parent, version) == {**dict.fromkeys(ADDONS, wanted), **images}
    assert locked_versions(out.parent, "1.99") == {}


@pytest.mark.slow
def test_what_has_no_default_is_left_out_and_named(run: Run, aws_api: AwsApi, tmp_path: Path) -> None:
    eks(aws_api, {"coredns"})
    out = tmp_path / "add-ons.json"
    done = run("lock", "add-ons", CONFIG, "--out", str(out))
    assert done.code == 0 and "coredns for 1.34, coredns for 1.35" in done.err
    assert "coredns" not in locked_versions(tmp_path, "1.35")
    before = out.read_bytes()
    eks(aws_api, ADDONS)
    done = run("lock", "add-ons", CONFIG, "--out", str(out))
    assert (done.code, done.err) == (1, f"EKS in us-west-2 names no default version of any add-on: {out} stays as it is\n")
    assert out.read_bytes() == before


def test_without_a_lock_no_version_is_known(tmp_path: Path) -> None:
    assert locked_versions(tmp_path, "1.35") == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"versions": []}', '{"versions": {"1.35": 7}}'])
def test_a_broken_lock_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "add-ons.json").write_text(text)
    with pytest.raises(SettingError, match="is no lock of add-ons: `paddle-aws lock add-ons` writes one"):
        locked_versions(tmp_path, "1.35")
