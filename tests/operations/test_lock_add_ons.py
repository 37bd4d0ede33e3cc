"""`lock add-ons`, and what the stacks make of its file."""

import json
from pathlib import Path

import pytest
from add_on_answers import AddOnAnswers, release
from aws_api import AwsApi
from commands import Run

from settings.errors import SettingError
from stacks.build import locked_versions
from stacks.cluster_spec import ADDONS, KUBERNETES_VERSIONS, NODE_IMAGES

CONFIG = str(Path(__file__).parents[2] / "cluster.yaml")


@pytest.mark.slow
def test_the_default_of_each_add_on_and_version_is_read(run: Run, aws_api: AwsApi, tmp_path: Path) -> None:
    aws = AddOnAnswers(aws_api)
    out = tmp_path / "locks" / "add-ons.json"
    done = run("lock", "add-ons", CONFIG, "--out", str(out))
    assert (done.code, done.out) == (0, ""), done.err
    count = (len(ADDONS) + len(NODE_IMAGES)) * len(KUBERNETES_VERSIONS) - 1
    assert done.err == f"{count} versions are in {out}; EKS names no default of AL2023_x86_64_NVIDIA for 1.36\n"
    lock = json.loads(out.read_text())
    assert (lock["region"], "DescribeAddonVersions" in lock["source"], len(lock["read"])) == ("us-west-2", True, 10)
    for version in KUBERNETES_VERSIONS:
        images = dict.fromkeys(NODE_IMAGES, release(version))
        if version == "1.36":
            del images["AL2023_x86_64_NVIDIA"]
        assert locked_versions(out.parent, version) == {**dict.fromkeys(ADDONS, f"v1.{version[2:]}.1-eksbuild.1"), **images}
    assert locked_versions(out.parent, "1.99") == {} == locked_versions(tmp_path, "1.35")

    aws.newest["coredns"] = 0
    done = run("lock", "add-ons", CONFIG, "--out", str(out))
    assert done.code == 0 and "coredns for 1.34, coredns for 1.35" in done.err
    assert "coredns" not in locked_versions(out.parent, "1.35")
    before = out.read_bytes()
    aws.newest = dict.fromkeys(ADDONS, 0)
    done = run("lock", "add-ons", CONFIG, "--out", str(out))
    assert (done.code, done.err) == (1, f"EKS in us-west-2 names no default version of any add-on: {out} stays as it is\n")
    assert out.read_bytes() == before


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"versions": []}', '{"versions": {"1.35": 7}}'])
def test_a_broken_lock_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "add-ons.json").write_text(text)
    with pytest.raises(SettingError, match="is no lock of add-ons: `paddle-aws lock add-ons` writes one"):
        locked_versions(tmp_path, "1.35")
