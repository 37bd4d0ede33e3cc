"""`lock add-ons`, and an upgrade in the one documented way, really deployed: what is behind before
it, and the order of changes.

The emulator has neither EKS's list of add-on versions nor AWS's public parameters, so the tests
supply both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_api import AwsApi, Parameters
from commands import Run

from paddle_aws.rehearsal.cloud import Cloud, CloudError
from paddle_aws.stacks.cluster_spec import ADDONS, KUBERNETES_VERSIONS, NODE_IMAGES
from paddle_aws.stacks.platform import locked_versions
from paddle_settings.errors import SettingError

PROJECT = Path(__file__).parents[2]
VERSIONS = ("version", "add-on versions", "node images")


def release(kubernetes: str, day: int = 1) -> str:
    """The release version of a node image."""
    return f"{kubernetes}.0-2026110{day}"


class AddOnAnswers:
    """Two pages per add-on, the older version first; the releases of all images except NVIDIA's for
    1.36.
    """

    def __init__(self, api: AwsApi) -> None:
        self.newest: dict[str, int] = {}
        """Patch number of each add-on's default version; 1 for an add-on that is not listed; 0
        means no default.
        """
        self.day = 1
        api.answer("eks", "DescribeAddonVersions", self._supported)
        api.answer("ssm", "GetParameters", self._recommended)

    def _supported(self, asked: Parameters) -> dict[str, Any]:
        name, kubernetes = asked["addonName"], asked["kubernetesVersion"]
        default, last = self.newest.get(name, 1), "nextToken" in asked
        patch = default if last else 0
        elsewhere = {"clusterVersion": "1.0", "defaultVersion": True}
        here = {"clusterVersion": kubernetes, "defaultVersion": last and default > 0}
        version = {
            "addonVersion": f"v1.{kubernetes[2:]}.{patch}-eksbuild.1",
            "compatibilities": [here, elsewhere],
        }
        more = {} if last else {"nextToken": "more"}
        return {"addons": [{"addonName": name, "addonVersions": [version]}], **more}

    def _recommended(self, asked: Parameters) -> dict[str, Any]:
        assert all(name.endswith("/recommended/release_version") for name in asked["Names"])
        names = [
            name for name in asked["Names"] if "/1.36/amazon-linux-2023/x86_64/nvidia/" not in name
        ]
        return {
            "Parameters": [
                {"Name": name, "Value": release(name.split("/")[5], self.day)} for name in names
            ]
        }


@pytest.mark.slow
def test_the_default_of_each_add_on_and_version_is_read(
    run: Run, aws_api: AwsApi, tmp_path: Path
) -> None:
    aws = AddOnAnswers(aws_api)
    out = tmp_path / "locks" / "add-ons.json"
    command = ("lock", "add-ons", str(PROJECT / "cluster.yaml"), "--out", str(out))
    done = run(*command)
    assert (done.code, done.out) == (0, ""), done.err
    count = (len(ADDONS) + len(NODE_IMAGES)) * len(KUBERNETES_VERSIONS) - 1
    assert (
        done.err
        == f"{count} versions are in {out}; EKS names no default of AL2023_x86_64_NVIDIA for 1.36\n"
    )
    lock = json.loads(out.read_text())
    assert (lock["region"], "DescribeAddonVersions" in lock["source"], len(lock["read"])) == (
        "us-west-2",
        True,
        10,
    )
    for version in KUBERNETES_VERSIONS:
        images = dict.fromkeys(NODE_IMAGES, release(version))
        if version == "1.36":
            del images["AL2023_x86_64_NVIDIA"]
        assert locked_versions(out.parent, version) == {
            **dict.fromkeys(ADDONS, f"v1.{version[2:]}.1-eksbuild.1"),
            **images,
        }
    assert locked_versions(out.parent, "1.99") == {} == locked_versions(tmp_path, "1.35")

    aws.newest["coredns"] = 0
    done = run(*command)
    assert done.code == 0 and "coredns for 1.34, coredns for 1.35" in done.err
    assert "coredns" not in locked_versions(out.parent, "1.35")
    before = out.read_bytes()
    aws.newest = dict.fromkeys(ADDONS, 0)
    done = run(*command)
    assert (done.code, done.err) == (
        1,
        f"EKS in us-west-2 names no default version of any add-on: {out} stays as it is\n",
    )
    assert out.read_bytes() == before
    # A broken lock gives one sentence.
    for broken in ("", "[]", "{}", '{"versions": []}', '{"versions": {"1.35": 7}}'):
        out.write_text(broken)
        with pytest.raises(
            SettingError, match="is not a lock of add-ons: `paddle-aws lock add-ons` writes one"
        ):
            locked_versions(out.parent, "1.35")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Links to the project's files, except for `locks` and cluster.yaml, which the test writes
    itself.
    """
    copy = tmp_path / "project"
    copy.mkdir()
    for path in PROJECT.iterdir():
        if path.name not in ("locks", "cluster.yaml"):
            (copy / path.name).symlink_to(path)
    return copy


def settings(version: str) -> str:
    return (
        (PROJECT / "cluster.yaml").read_text().replace('version: "1.36"', f'version: "{version}"')
    )


@pytest.fixture
def cloud(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    rules = PROJECT / "tests" / "emulator" / "parts" / "upgrades.py"
    with Cloud(
        project=project, state=tmp_path / "state", parts=[rules], extra={"CDK_VALIDATION": "false"}
    ) as started:
        started.bootstrap(PROJECT / "cluster.yaml")
        for name, value in started.environment.items():
            monkeypatch.setenv(name, value)
        yield started


def read_versions(run: Run, config: Path) -> list[tuple[str, str]]:
    """What `doctor` says about versions: state and text."""
    findings = json.loads(run("doctor", str(config), "--json").out)
    return [
        (finding["state"], finding["text"]) for finding in findings if finding["check"] in VERSIONS
    ]


def order_of(cloud: Cloud) -> list[str]:
    """The parts that each stack's last operation updated, in order; the emulator also names parts
    that did not change.
    """
    seen = []
    for stack in ("paddle-cluster", "paddle-nodes"):
        events = cloud.client("cloudformation").describe_stack_events(StackName=stack)[
            "StackEvents"
        ]
        for event in events:
            if (event["LogicalResourceId"], event["ResourceStatus"]) == (
                stack,
                "UPDATE_IN_PROGRESS",
            ):
                break
            kind = event["ResourceType"].rpartition(":")[2]
            if (
                kind in ("Cluster", "Addon", "Nodegroup")
                and event["ResourceStatus"] == "UPDATE_COMPLETE"
            ):
                name = event["PhysicalResourceId"].rpartition("|")[2]
                seen.append((event["Timestamp"], name if kind == "Addon" else kind))
    return [name for _, name in sorted(seen, key=lambda update: update[0])]


@pytest.mark.slow
@pytest.mark.long
def test_one_way_upgrades_control_plane_add_ons_and_nodes_in_order(
    run: Run, cloud: Cloud, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, locks, outputs = (
        project / "cluster.yaml",
        project / "locks" / "add-ons.json",
        project.parent / "outputs.json",
    )
    eks, aws_says = cloud.client("eks"), AddOnAnswers(AwsApi(monkeypatch, upstream=True))
    monkeypatch.chdir(project)
    config.write_text(settings("1.34"))
    assert run("lock", "add-ons", str(config), "--out", str(locks)).code == 0
    cloud.deploy(config, outputs)
    assert {state for state, _ in read_versions(run, config)} == {"ok"}

    # A step that skips a version, or goes back, ends before anything is prepared; a bare `cdk
    # deploy` meets EKS's own refusal.
    config.write_text(settings("1.36"))
    sentence = (
        "cluster.version is 1.36 and the control plane runs Kubernetes 1.34: it takes one minor "
        "version at a time, deploy"
    )
    done = run("diff", str(config))
    assert (done.code, " ".join(done.err.split())) == (2, f"{sentence} 1.35 first")
    assert ("problem", f"{sentence} 1.35 first") in read_versions(run, config)
    with pytest.raises(
        CloudError, match=r"Unsupported Kubernetes minor version update from 1\.34 to 1\.36"
    ):
        cloud.deploy(config, outputs)

    # The lock changes nothing on its own; with the new version, each part follows.
    config.write_text(settings("1.35"))
    behind = (
        "the control plane runs Kubernetes 1.34 and cluster.version is 1.35: run `paddle-aws "
        "lock add-ons` and `cdk deploy"
    )
    assert [text for state, text in read_versions(run, config) if state != "ok"] == [
        f"{behind} --all`"
    ]
    assert run("diff", str(config)).code == 0
    cloud.deploy(config, outputs)
    order = order_of(cloud)
    assert order[0] == "Cluster"
    assert set(order[1:4]) == {"vpc-cni", "kube-proxy", "eks-pod-identity-agent"}
    assert order[4] == "Nodegroup"
    assert set(order[5:]) == {
        "coredns",
        "aws-efs-csi-driver",
        "eks-node-monitoring-agent",
        "metrics-server",
    }
    assert {state for state, _ in read_versions(run, config)} == {"ok"}
    [name] = eks.list_nodegroups(clusterName="paddle")["nodegroups"]
    group = eks.describe_nodegroup(clusterName="paddle", nodegroupName=name)["nodegroup"]
    assert (group["version"], group["releaseVersion"]) == ("1.35", release("1.35"))

    # When AWS has a newer image of the same version, or a newer add-on, the cluster is behind and
    # upgrades in the same way.
    aws_says.day = 9
    aws_says.newest["coredns"] = 12
    advice = "run `paddle-aws lock add-ons` and `cdk deploy --all`"
    assert [text for state, text in read_versions(run, config) if state != "ok"] == [
        "coredns is v1.35.1-eksbuild.1, AWS's default for this Kubernetes version is "
        f"v1.35.12-eksbuild.1: {advice}",
        f"{name} is {release('1.35')}, AWS's default for this Kubernetes version is "
        f"{release('1.35', 9)}: {advice}",
    ]
    assert run("lock", "add-ons", str(config), "--out", str(locks)).code == 0
    # CloudFormation refuses it together with another change of the group, so it must go alone.
    config.write_text(settings("1.35").replace("desired: 3", "desired: 4"))
    done = run("diff", str(config))
    assert done.code == 1 and "deploy its other changes first, then the version" in " ".join(
        done.err.split()
    )
    with pytest.raises(CloudError, match="cannot be combined with other updates"):
        cloud.deploy(config, outputs)
    config.write_text(settings("1.35"))
    cloud.cdk(
        "deploy",
        "--all",
        "--require-approval",
        "never",
        "--outputs-file",
        str(outputs),
        config=config,
    )
    assert {state for state, _ in read_versions(run, config)} == {"ok"}
