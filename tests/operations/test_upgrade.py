"""An upgrade by the one documented way, really deployed: what is behind before, what changes in which order, what is said after.

The emulator has neither EKS's list of add-on versions nor AWS's public parameters: the test answers with both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from add_on_answers import AddOnAnswers, release
from aws_api import AwsApi
from commands import Done, Run

from operations.account.version_checks import refused_step
from rehearsal.cloud import Cloud, CloudError
from stacks.cluster_spec import ClusterSpec

PROJECT = Path(__file__).parents[2]
VERSIONS = ("version", "add-on versions", "node images")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project, with a folder `locks` of its own."""
    copy = tmp_path / "project"
    copy.mkdir()
    for path in PROJECT.iterdir():
        if path.name not in ("locks", "cluster.yaml"):
            (copy / path.name).symlink_to(path)
    return copy


@pytest.fixture
def config(project: Path) -> Path:
    return project / "cluster.yaml"


def settings(version: str) -> str:
    return (PROJECT / "cluster.yaml").read_text().replace('version: "1.35"', f'version: "{version}"')


@pytest.fixture
def cloud(project: Path, tmp_path: Path) -> Iterator[Cloud]:
    rules = PROJECT / "tests" / "emulator" / "parts" / "upgrades.py"
    with Cloud(project=project, state=tmp_path / "state", parts=[rules], extra={"CDK_VALIDATION": "false"}) as started:
        started.bootstrap(PROJECT / "cluster.yaml")
        yield started


@pytest.fixture
def aws_says(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> AddOnAnswers:
    """What the emulator does not know; its own answers to all else."""
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    return AddOnAnswers(AwsApi(monkeypatch, upstream=True))


def found(run: Run, config: Path) -> list[tuple[str, str]]:
    """What `doctor` says of versions: state and text."""
    told = json.loads(run("doctor", str(config), "--json").out)
    return [(one["state"], one["text"]) for one in told if one["check"] in VERSIONS]


def diff(run: Run, config: Path, monkeypatch: pytest.MonkeyPatch) -> Done:
    with monkeypatch.context() as there:
        there.chdir(config.parent)
        return run("diff", str(config))


def order_of(cloud: Cloud) -> list[str]:
    """What each stack's last operation came to, in order; the emulator names parts that stayed as they were as well."""
    seen = []
    for stack in ("paddle-cluster", "paddle-nodes"):
        events = cloud.client("cloudformation").describe_stack_events(StackName=stack)["StackEvents"]
        for event in events:
            if (event["LogicalResourceId"], event["ResourceStatus"]) == (stack, "UPDATE_IN_PROGRESS"):
                break
            kind = event["ResourceType"].rpartition(":")[2]
            if kind in ("Cluster", "Addon", "Nodegroup") and event["ResourceStatus"] == "UPDATE_COMPLETE":
                name = event["PhysicalResourceId"].rpartition("|")[2]
                seen.append((event["Timestamp"], name if kind == "Addon" else kind))
    return [name for _, name in sorted(seen, key=lambda one: one[0])]


@pytest.mark.slow
def test_one_way_upgrades_control_plane_add_ons_and_nodes_in_order(
    aws_says: AddOnAnswers, run: Run, cloud: Cloud, project: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks, outputs = project / "locks" / "add-ons.json", project.parent / "outputs.json"
    eks = cloud.client("eks")
    config.write_text(settings("1.34"))
    assert run("lock", "add-ons", str(config), "--out", str(locks)).code == 0
    cloud.deploy(config, outputs)
    assert {state for state, _ in found(run, config)} == {"ok"}

    # A step over a version, and one back, end before anything is prepared; `cdk deploy` alone meets EKS's own refusal.
    config.write_text(settings("1.36"))
    sentence = "cluster.version is 1.36 and the control plane runs Kubernetes 1.34: it takes one minor version at a time, deploy"
    done = diff(run, config, monkeypatch)
    assert (done.code, " ".join(done.err.split())) == (2, f"{sentence} 1.35 first")
    assert ("problem", f"{sentence} 1.35 first") in found(run, config)
    with pytest.raises(CloudError, match=r"Unsupported Kubernetes minor version update from 1\.34 to 1\.36"):
        cloud.deploy(config, outputs)

    # The lock changes nothing by itself; with the new version each part follows.
    config.write_text(settings("1.35"))
    behind = "the control plane runs Kubernetes 1.34 and cluster.version is 1.35: run `paddle-aws lock add-ons` and `cdk deploy"
    assert [text for state, text in found(run, config) if state != "ok"] == [f"{behind} --all`"]
    assert diff(run, config, monkeypatch).code == 0
    cloud.deploy(config, outputs)
    order = order_of(cloud)
    assert order[0] == "Cluster"
    assert set(order[1:4]) == {"vpc-cni", "kube-proxy", "eks-pod-identity-agent"}
    assert order[4] == "Nodegroup"
    assert set(order[5:]) == {"coredns", "aws-efs-csi-driver", "eks-node-monitoring-agent"}
    assert {state for state, _ in found(run, config)} == {"ok"}
    [name] = eks.list_nodegroups(clusterName="paddle")["nodegroups"]
    group = eks.describe_nodegroup(clusterName="paddle", nodegroupName=name)["nodegroup"]
    assert (group["version"], group["releaseVersion"]) == ("1.35", release("1.35"))

    # A newer image of the same version is behind, too, and goes the same way; so does a newer add-on.
    aws_says.day = 9
    aws_says.newest["coredns"] = 12
    advice = "run `paddle-aws lock add-ons` and `cdk deploy --all`"
    assert [text for state, text in found(run, config) if state != "ok"] == [
        f"coredns is v1.35.1-eksbuild.1, AWS's default for this Kubernetes version is v1.35.12-eksbuild.1: {advice}",
        f"{name} is {release('1.35')}, AWS's default for this Kubernetes version is {release('1.35', 9)}: {advice}",
    ]
    assert run("lock", "add-ons", str(config), "--out", str(locks)).code == 0
    # With another change of the group CloudFormation refuses it: it goes alone.
    config.write_text(settings("1.35").replace("desired: 3", "desired: 4"))
    done = diff(run, config, monkeypatch)
    assert done.code == 1 and "deploy its other changes first, then the version" in " ".join(done.err.split())
    with pytest.raises(CloudError, match="cannot be combined with other updates"):
        cloud.deploy(config, outputs)
    config.write_text(settings("1.35"))
    cloud.cdk("deploy", "--all", "--require-approval", "never", "--outputs-file", str(outputs), config=config)
    assert {state for state, _ in found(run, config)} == {"ok"}


@pytest.mark.parametrize(
    ("has", "says"), [("1.35", None), ("1.34", None), ("1.33", "deploy 1.34 first"), ("1.36", "set 1.36"), (None, None)]
)
def test_no_step_but_the_next_minor_version(has: str | None, says: str | None) -> None:
    lock = PROJECT / "tests" / "aws" / "variants" / "distribution" / "lock.json"
    kinds: list[dict[str, Any]] = [{"version": "1.35"}]
    kinds.append({"kind": "self-managed", "distribution": {"lock": str(lock), "files": str(lock.parent)}})
    for cluster in kinds:
        spec = ClusterSpec.model_validate({"retain": False, "cluster": cluster})
        told = refused_step(spec, {"KubernetesVersion": has} if has else {})
        assert told is None if says is None else told is not None and told.endswith(says)
