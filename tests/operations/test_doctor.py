"""`doctor`, `doctor --destroy` and `leftovers` against an emulated account: before, between and after deploy and destroy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from aws_api import AwsApi
from commands import Done, Run
from kubernetes_api import KubernetesApi

from rehearsal.cloud import Cloud, CloudError

PROJECT = Path(__file__).parents[2]
CONFIG = PROJECT / "cluster.yaml"


def states(done: Done) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in json.loads(done.out):
        found.setdefault(one["check"], set()).add(one["state"])
    return found


@pytest.mark.slow
def test_an_empty_account(run: Run, aws: Cloud) -> None:
    done = run("doctor", str(CONFIG), "--json")
    assert done.code == 1
    found = states(done)
    assert found["credentials"] == found["zones"] == found["stacks"] == {"ok"}
    assert found["bootstrap"] == {"problem"}
    # What this account does not answer is unchecked, and the rest is checked all the same.
    assert found["instance types"] == {"warning"}
    assert "not checked: AWS refused DescribeInstanceTypeOfferings" in done.out
    assert found["existing parts"] == {"ok"}
    assert "run `paddle-aws bootstrap" in done.out


def test_a_settings_file_that_is_wrong(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("retain: perhaps\n")
    done = run("doctor", str(tmp_path / "cluster.yaml"))
    assert done.code == 2 and done.err.startswith("cluster.yaml: retain must be true or false (found perhaps)")


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """An account with the shipped cluster in it."""
    state = tmp_path_factory.mktemp("deployed")
    with Cloud(project=PROJECT, state=state) as cloud:
        cloud.bootstrap()
        cloud.deploy(CONFIG, state / "outputs.json")
        yield cloud


def change_sets(cloud: Cloud, stack: str) -> dict[str, list[dict[str, str]]]:
    found = cloud.client("cloudformation").list_change_sets(StackName=stack)["Summaries"]
    return {"ChangeSets": [each for each in found if each["ExecutionStatus"] == "AVAILABLE"]}


@pytest.mark.slow
def test_diff_names_what_cloudformation_refuses_and_what_a_deploy_leaves_behind(
    run: Run, deployed: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in deployed.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(PROJECT)
    other = tmp_path / "cluster.yaml"
    other.write_text(CONFIG.read_text().replace("zone:\n  name: paddle", "zone:\n  name: another"))
    done = run("diff", str(other))
    assert done.code == 1 and done.err.endswith("set it back, or deploy a cluster of another `name`\n") and "lose" not in done.err
    other.write_text(CONFIG.read_text().replace("\ncluster:\n", "\ncluster:\n  service_cidr: 172.21.0.0/16\n"))
    done = run("diff", str(other))
    assert (done.code, done.err) == (
        1,
        "CloudFormation cannot change cluster.service_cidr of a deployed cluster: "
        "set it back, or deploy a cluster of another `name`\n",
    )
    with pytest.raises(CloudError, match="custom-named resource requires replacing"):
        deployed.deploy(other, tmp_path / "outputs.json")
    other.write_text(CONFIG.read_text() + "\nbudget: {emails: [somebody@example.com]}\n")
    deployed.deploy(other, tmp_path / "outputs.json")
    done = run("diff", str(CONFIG))
    assert done.code == 0 and "paddle-watch" in done.out and "left behind" in done.out
    deletes = "aws cloudformation delete-stack --stack-name paddle-watch --region us-west-2"
    assert f"leaves paddle-watch and its alarms behind: run `{deletes}` first" in " ".join(done.err.split())
    deployed.client("cloudformation").delete_stack(StackName="paddle-watch")
    deployed.deploy(CONFIG, tmp_path / "outputs.json")


@pytest.mark.slow
def test_a_cluster_from_its_deploy_to_its_destroy(
    run: Run, deployed: Cloud, api: KubernetesApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in deployed.environment.items():
        monkeypatch.setenv(name, value)
    found = states(run("doctor", str(CONFIG), "--json"))
    for check in ("bootstrap", "stacks", "cluster", "add-ons", "node groups", "mount targets"):
        assert found[check] == {"ok"}, check
    assert found["kubectl"] == {"ok", "warning"}

    assert found["stack policy"] == {"warning"}

    monkeypatch.chdir(PROJECT)
    assert run("protect", str(CONFIG)).code == 0
    assert states(run("doctor", str(CONFIG), "--json"))["stack policy"] == {"ok"}
    done = run("diff", str(CONFIG))
    assert (done.code, done.err) == (0, "nothing is replaced or removed\n")
    other = tmp_path / "cluster.yaml"
    ids = "{id: fs-0123456789abcdef0, security_group: sg-0123456789abcdef0}"
    other.write_text(CONFIG.read_text() + f"\nfile_system: {{posix_id: 2000, existing: {ids}}}\n")
    done = run("diff", str(other), "--json")
    assert done.code == 1 and "the deploy would lose what the last column names" in done.err
    told = {(one["type"].rpartition(":")[2], one["change"]) for one in json.loads(done.out) if one["what"]}
    assert told == {("FileSystem", "removed"), ("AccessPoint", "replaced")}
    other.write_text(CONFIG.read_text().replace("name: paddle\n", "name: second\n", 1))
    done = run("diff", str(other))
    assert done.code == 0 and "us-west-2 has another cluster: paddle. A new `name` is a new cluster" in " ".join(done.err.split())
    assert all(
        not each.get("ChangeSets") for each in [change_sets(deployed, name) for name in ("paddle-storage", "paddle-nodes")]
    )

    assert run("doctor", "--destroy", str(CONFIG)).code == 0
    outputs = {
        out["OutputKey"]: out["OutputValue"]
        for stack in deployed.client("cloudformation").describe_stacks()["Stacks"]
        for out in stack.get("Outputs", ())
    }
    ec2 = deployed.client("ec2")
    foreign = ec2.create_security_group(GroupName="by-hand", Description="d", VpcId=outputs["VpcId"])["GroupId"]
    done = run("doctor", "--destroy", str(CONFIG))
    assert done.code == 1
    assert f"{foreign} (by-hand) is of no stack: aws ec2 delete-security-group --group-id {foreign}" in done.out
    ec2.delete_security_group(GroupId=foreign)

    done = run("leftovers", str(CONFIG), "--json")
    assert done.code == 0 and "`cdk destroy --all` removes it, and nothing else is left" in done.err
    left = {one["id"]: one for one in json.loads(done.out)["left"]}
    parts = {"cluster paddle", "stack paddle-storage", f"file-system {outputs['FileSystemId']}", "repository paddle/trainer"}
    assert parts | {outputs["BucketName"]} <= left.keys()
    assert {one["expected"] for one in left.values()} == {"deployed"}
    assert {one["command"].rpartition("-")[0] for one in left.values()} == {"cdk destroy paddle"}

    # Half destroyed, with something that no stack owns, and a stack that could not be deleted.
    deployed.cdk("destroy", "paddle-cluster", "--force", config=CONFIG)
    deployed.client("logs").create_log_group(logGroupName="/aws/eks/paddle/cluster")
    by_hand = "aws logs delete-log-group --log-group-name /aws/eks/paddle/cluster --region us-west-2"
    done = run("leftovers", str(CONFIG), "--json")
    assert done.code == 1 and done.err == "cluster paddle has left 1 in us-west-2: remove what is listed above\n"
    left = {one["id"]: one for one in json.loads(done.out)["left"]}
    assert "cluster paddle" not in left and left[f"file-system {outputs['FileSystemId']}"]["expected"] == "deployed"
    assert [one["command"] for one in left.values() if not one["expected"]] == [by_hand]
    ended = {"paddle-network": "DELETE_FAILED", "paddle-access": "UPDATE_COMPLETE", "paddle-storage": "CREATE_COMPLETE"}
    created = "2026-11-21T00:00:00Z"
    stacks = [{"StackName": name, "StackStatus": state, "CreationTime": created} for name, state in ended.items()]
    with monkeypatch.context() as answered:
        aws = AwsApi(answered, upstream=True)
        aws.answer("cloudformation", "DescribeStacks", {"Stacks": stacks})
        done = run("leftovers", str(CONFIG))
        aws.refuse("cloudformation", "ListStackResources", "AccessDenied", "not you")
        assert run("leftovers", str(CONFIG)) == Done(3, "", "AWS refused ListStackResources: AccessDenied: not you\n")
    row = next(line for line in done.out.splitlines() if f"vpc {outputs['VpcId']}" in line)
    assert done.code == 1 and row.split(maxsplit=3)[3] == "paddle-network is DELETE_FAILED  cdk destroy paddle-network"
    deployed.client("logs").delete_log_group(logGroupName="/aws/eks/paddle/cluster")

    deployed.destroy(CONFIG)
    done = run("leftovers", str(CONFIG))
    assert done.code == 0, done.out + done.err
    deployed.client("logs").create_log_group(logGroupName="/aws/eks/paddle/cluster")
    done = run("leftovers", str(CONFIG))
    assert done.code == 1
    assert by_hand in done.out


OWN = PROJECT / "tests" / "aws" / "variants" / "self-managed-cluster.yaml"


@pytest.mark.slow
def test_a_self_managed_cluster_from_its_deploy_to_its_destroy(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator's machines run and do not boot: what only a control plane can bring about is found missing."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with Cloud(project=PROJECT, state=tmp_path) as cloud:
        for name, value in cloud.environment.items():
            monkeypatch.setenv(name, value)
        cloud.bootstrap(OWN)
        cloud.deploy(OWN, tmp_path / "outputs.json")
        found = states(run("doctor", str(OWN), "--json"))
        assert found["stacks"] == found["mount targets"] == {"ok"}
        assert found["kubeconfig"] == {"problem"} and found["control plane"] == found["groups"] == {"ok"}
        assert found["etcd snapshots"] == {"warning"} and "add-ons" not in found
        assert "has not written its kubeconfig yet" in run("kubeconfig", str(OWN)).err
        assert run("doctor", "--destroy", str(OWN)).code == 0
        done = run("leftovers", str(OWN), "--json")
        left = {one["id"].split()[0]: one["command"] for one in json.loads(done.out)["left"]}
        assert done.code == 0 and all(command.startswith("cdk destroy tutorial-") for command in left.values())
        expected = {"volume", "elastic-ip", "network-interface", "secret", "key-pair", "parameter", "group", "launch-template"}
        assert expected <= left.keys()
        cloud.destroy(OWN)
        done = run("leftovers", str(OWN))
        assert done.code == 0, done.out + done.err
