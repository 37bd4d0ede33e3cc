"""`doctor`, `diff` and `leftovers`: what they say about AWS's answers, and about a cluster in an
emulated account.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any

import botocore
import pytest
import yaml
from aws_api import AwsApi, Parameters
from commands import Done, Run
from kubernetes_api import KubernetesApi

from paddle_aws.rehearsal.cloud import Cloud, CloudError

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
VARIANTS = PROJECT / "tests" / "aws" / "variants"
CONFIG = PROJECT / "cluster.yaml"
OWN = VARIANTS / "self-managed-cluster.yaml"
USER = "arn:aws:iam::000000000000:user/me"
BY_HAND = "aws logs delete-log-group --log-group-name /aws/eks/paddle/cluster --region us-west-2"
NOBODY = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")
TABLES = yaml.safe_load(
    Path(__file__)
    .with_name("doctor.yaml")
    .read_text()
    .replace("BOTOCORE", botocore.__version__)
    .replace("SOON", f"{datetime.now(UTC) + timedelta(days=30):%Y-%m-%d}")
)
CASES = TABLES["cases"]


# Tests of what no emulator answers: quotas, instance types, simulated policies, budgets.


def read_findings(run: Run, *arguments: str | Path) -> dict[str, list[dict[str, str]]]:
    """Maps each check to its findings, as {state: text}."""
    findings: dict[str, list[dict[str, str]]] = {}
    for finding in json.loads(run("doctor", *map(str, arguments), "--json").out):
        findings.setdefault(finding["check"], []).append({finding["state"]: finding["text"]})
    return findings


@pytest.mark.parametrize("name", CASES)
def test_what_a_check_says(
    run: Run, aws_api: AwsApi, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    case = CASES[name]
    monkeypatch.setenv("KUBECONFIG", "none")
    settings = {"retain": False, "region": "us-west-2", **case.get("settings", {})}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    config = VARIANTS / case["config"] if "config" in case else folder / "cluster.yaml"
    if "endpoints" in case:
        # An older botocore's list, which botocore reads from there first.
        listed = json.loads((resources.files("botocore") / "data" / "endpoints.json").read_text())
        for service, region in case["endpoints"].items():
            del listed["partitions"][0]["services"][service]["endpoints"][region]
        (folder / "models").mkdir()
        (folder / "models" / "endpoints.json").write_text(json.dumps(listed))
        monkeypatch.setenv("AWS_DATA_PATH", str(folder / "models"))
    for operation, answer in case["answers"].items():
        (aws_api.refuse if isinstance(answer, str) else aws_api.answer)(*operation.split(), answer)
    findings = read_findings(run, config, *case.get("options", "").split())
    assert {check: findings.get(check, []) for check in case["says"]} == case["says"]
    # Nothing else is ever changed.
    activations = [{"CostAllocationTagsStatus": [{"TagKey": "cluster", "Status": "Active"}]}]
    changes = "ce UpdateCostAllocationTagsStatus" in case["answers"]
    assert aws_api.asked("UpdateCostAllocationTagsStatus") == (activations if changes else [])
    deletes = "logs DeleteLogGroup" in case["answers"]
    group = {"logGroupName": "/aws/eks/paddle/cluster"}
    assert aws_api.asked("DeleteLogGroup") == ([group] if deletes else [])


@pytest.mark.parametrize(("driver", "cuda", "says"), TABLES["drivers"])
def test_the_driver_of_the_nodes_fits_the_cuda_of_the_image(
    run: Run,
    api: KubernetesApi,
    aws_api: AwsApi,
    folder: Path,
    driver: str | None,
    cuda: str,
    says: dict[str, str],
) -> None:
    nodes = {"workers": {}, "gpus": {"instance_types": ["g5.xlarge"], "gpu": True}}
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"retain": False, "nodes": nodes}))
    (folder / "image.json").write_text(json.dumps({"image": "mine:1", "cuda": cuda}))
    stack = {
        "StackName": "paddle-network",
        "StackStatus": "CREATE_COMPLETE",
        "CreationTime": "2026-11-21T00:00:00Z",
    }
    aws_api.answer("cloudformation", "DescribeStacks", {"Stacks": [stack]})
    shown = {} if driver in (None, "none") else {"nvidia.com/gpu": "1"}
    ours = {} if driver is None else {"paddle-aws/gpu": "true"}
    ours |= {"nvidia.com/cuda.driver-version.major": driver} if driver else {}
    for name, capacity, labels in (("cpu", {}, {}), ("gpu", shown, ours)):
        metadata = {"name": name, "labels": labels}
        api.put(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": metadata,
                "status": {"capacity": capacity},
            }
        )
    [finding] = read_findings(run, folder / "cluster.yaml")["GPU driver"]
    ((state, text),) = finding.items()
    ((expected_state, words),) = says.items()
    assert state == expected_state and words in text


@pytest.mark.parametrize("destroy", [(), ("--destroy",)], ids=["deploy", "destroy"])
def test_without_an_account_nothing_is_well(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, destroy: Any
) -> None:
    """`doctor && cdk deploy` must stop there, and every check is listed all the same."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in NOBODY:
        monkeypatch.delenv(name, raising=False)
    words = "no AWS credentials were found: log in"
    done = run("doctor", str(CONFIG), *destroy)
    assert done.code == 3 and "the account cannot be queried" in done.err
    assert (
        done.out.splitlines()[1].split(maxsplit=2)[:2] == ["credentials", "problem"]
        and words in done.out
    )
    # Several checks that say the same share one line.
    (same,) = [line for line in done.out.splitlines() if "not checked: " + words in line]
    assert (
        "(protection, members, load balancers, network"
        if destroy
        else "(region enabled, free plan, zones, instance types, quotas: vCPUs"
    ) in same
    left = run("leftovers", str(CONFIG))
    assert left.code == 3 and left.err.startswith(words) and len(left.err.splitlines()) == 1


def simulated(api: AwsApi, *refused: str, apart: bool = False) -> None:
    """Answers IAM's policy simulation for a user: it denies an action or resource whose name
    contains one of `refused`.

    `apart`: AWS gives each resource's decision below the action's, as it does for several
    resources.
    """
    api.answer(
        "sts", "GetCallerIdentity", {"UserId": "AIDA", "Account": "000000000000", "Arn": USER}
    )

    def decided(action: str, arn: str) -> dict[str, str]:
        decision = (
            "implicitDeny" if any(word in f"{action} {arn}" for word in refused) else "allowed"
        )
        return {
            "EvalResourceName": arn,
            "EvalResourceDecision" if apart else "EvalDecision": decision,
        }

    def answer(asked: Parameters) -> dict[str, Any]:
        assert asked["PolicySourceArn"] == USER
        results = []
        for action in asked["ActionNames"]:
            decisions = [decided(action, arn) for arn in asked["ResourceArns"]]
            whole = {
                "EvalResourceName": "*",
                "EvalDecision": "allowed",
                "ResourceSpecificResults": decisions,
            }
            results += [
                {"EvalActionName": action} | result for result in ([whole] if apart else decisions)
            ]
        return {"EvaluationResults": results}

    api.answer("iam", "SimulatePrincipalPolicy", answer)


def test_what_the_caller_may_not_is_named(run: Run, aws_api: AwsApi) -> None:
    simulated(aws_api)
    allowed = f"{USER} may take cdk's roles and deploy, and reach the cluster afterwards"
    assert read_findings(run, CONFIG)["permissions"] == [{"ok": allowed}]
    advice = "take the operator's role, or join its group (docs/people.md)"
    simulated(aws_api, "file-publishing", "secretsmanager:GetSecretValue", apart=True)
    role = "arn:aws:iam::000000000000:role/cdk-tutorial-file-publishing-role-000000000000-us-west-2"
    secret = (
        "arn:aws:secretsmanager:us-west-2:000000000000:secret:tutorial/kubeconfig/operator-AbCdEf"
    )
    assert read_findings(run, OWN)["permissions"] == [
        {
            "problem": f"{USER} may not sts:AssumeRole on {role}, needed to deploy with cdk's "
            f"roles: {advice}"
        },
        {
            "warning": f"{USER} may not secretsmanager:GetSecretValue on {secret}, needed "
            f"to run `paddle-aws kubeconfig`: {advice}"
        },
    ]
    simulated(aws_api, "sts:AssumeRole")
    assert "deploy-role" in read_findings(run, OWN)["permissions"][0]["problem"]


# Tests of an emulated account before, between and after deploy and destroy.


def states(run: Run, config: Path) -> dict[str, set[str]]:
    return {
        check: {state for finding in findings for state in finding}
        for check, findings in read_findings(run, config).items()
    }


def test_an_empty_account(run: Run, aws: Cloud) -> None:
    checks = states(run, CONFIG)
    assert checks["credentials"] == checks["zones"] == checks["stacks"] == {"ok"}
    assert checks["bootstrap"] == {"problem"}
    # What this account does not answer stays unchecked, and the rest is checked all the same.
    assert checks["instance types"] == {"warning"}
    assert checks["existing parts"] == {"ok"}
    done = run("doctor", str(CONFIG))
    assert done.code == 1 and "run `paddle-aws bootstrap" in done.out
    assert "not checked: AWS refused DescribeInstanceTypeOfferings" in done.out
    done = run("doctor", str(CONFIG), "--fix", "--destroy")
    assert done.code == 2 and "leave out --destroy" in done.err


@pytest.fixture(scope="module")
def deployed(account: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Cloud:
    """The account, with the shipped cluster deployed in it."""
    account.bootstrap()
    account.deploy(CONFIG, tmp_path_factory.mktemp("deployed") / "outputs.json")
    return account


@pytest.mark.long
def test_diff_names_what_cloudformation_refuses_and_what_a_deploy_leaves_behind(
    run: Run, aws: Cloud, deployed: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(PROJECT)
    other = tmp_path / "cluster.yaml"
    other.write_text(CONFIG.read_text().replace("zone:\n  name: paddle", "zone:\n  name: another"))
    done = run("diff", str(other))
    assert (
        done.code == 1
        and done.err.endswith("set it back, or deploy a cluster of another `name`\n")
        and "lose" not in done.err
    )
    other.write_text(
        CONFIG.read_text().replace("\ncluster:\n", "\ncluster:\n  service_cidr: 172.21.0.0/16\n")
    )
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
    assert f"leaves paddle-watch and its alarms behind: run `{deletes}` first" in " ".join(
        done.err.split()
    )
    deployed.client("cloudformation").delete_stack(StackName="paddle-watch")
    deployed.deploy(CONFIG, tmp_path / "outputs.json")


def test_a_cluster_from_its_deploy_to_its_destroy(
    run: Run,
    aws: Cloud,
    deployed: Cloud,
    api: KubernetesApi,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    checks = states(run, CONFIG)
    for check in ("bootstrap", "stacks", "cluster", "add-ons", "node groups", "mount targets"):
        assert checks[check] == {"ok"}, check
    assert checks["kubectl"] == {"ok", "warning"} and checks["stack policy"] == {"warning"}
    monkeypatch.chdir(PROJECT)
    assert run("protect", str(CONFIG)).code == 0
    assert states(run, CONFIG)["stack policy"] == {"ok"}
    check_diff(run, deployed, tmp_path / "cluster.yaml")
    outputs = {
        out["OutputKey"]: out["OutputValue"]
        for stack in deployed.client("cloudformation").describe_stacks()["Stacks"]
        for out in stack.get("Outputs", ())
    }
    check_doctor_before_a_destroy(run, deployed, outputs["VpcId"])
    check_leftovers_of_a_deployed_cluster(run, outputs)
    check_leftovers_of_a_half_destroyed_cluster(run, deployed, outputs, monkeypatch)
    check_leftovers_of_a_destroyed_cluster(run, deployed, outputs["KeyArn"])


def check_diff(run: Run, deployed: Cloud, other: Path) -> None:
    """`diff` names what a deploy of `other`, changed settings, would lose."""
    done = run("diff", str(CONFIG))
    assert (done.code, done.err) == (0, "nothing is replaced or removed\n")
    ids = "{id: fs-0123456789abcdef0, security_group: sg-0123456789abcdef0}"
    other.write_text(CONFIG.read_text() + f"\nfile_system: {{posix_id: 2000, existing: {ids}}}\n")
    done = run("diff", str(other), "--json")
    assert done.code == 1 and "the deploy would lose what the last column names" in done.err
    losses = [change for change in json.loads(done.out) if change["what"]]
    assert {(loss["type"].rpartition(":")[2], loss["change"]) for loss in losses} == {
        ("FileSystem", "removed"),
        ("AccessPoint", "replaced"),
    }
    [lost] = [loss["what"] for loss in losses if loss["type"].endswith(":FileSystem")]
    assert "set `retain: true` and deploy first" in lost
    other.write_text(CONFIG.read_text() + "\nfile_system: {kind: lustre}\n")
    done = run("diff", str(other))
    assert done.code == 1 and (
        "a deploy makes a new, empty one, and CloudFormation refuses it while paddle-nodes use"
        in " ".join(done.err.split())
        and "with all it holds: to keep it, set `retain: true`" in " ".join(done.err.split())
    )
    # Nothing is replaced, and yet it is deleted: by lifecycle rules, within a day.
    less = "\nimages: {keep: 10}\nbucket: {keep_old_versions_days: 7}\n"
    other.write_text(CONFIG.read_text() + less)
    done = run("diff", str(other), "--json")
    sooner = sorted(change["what"] for change in json.loads(done.out))
    assert done.code == 1 and sooner == [
        *["old versions are kept for 7 days (today 30); older ones are deleted within a day"] * 2,
        "the newest 10 images (today 50) and those of submitted jobs are kept; all others are "
        "deleted within a day",
    ]
    other.write_text(CONFIG.read_text().replace("name: paddle\n", "name: second\n", 1))
    done = run("diff", str(other))
    assert (
        done.code == 0
        and "us-west-2 has another cluster: paddle. A new `name` is a new cluster"
        in " ".join(done.err.split())
    )
    # The cluster that a changed region leaves behind is named.
    zones = "network: {availability_zones: [eu-west-1a, eu-west-1b]}"
    other.write_text(f"retain: false\nregion: eu-west-1\n{zones}\n")
    done = run("diff", str(other))
    assert done.code == 0 and "cluster paddle is deployed in us-west-2: it stays" in done.err
    for stack in ("paddle-storage", "paddle-nodes"):
        sets = deployed.client("cloudformation").list_change_sets(StackName=stack)["Summaries"]
        assert "AVAILABLE" not in {change_set["ExecutionStatus"] for change_set in sets}


def check_doctor_before_a_destroy(run: Run, deployed: Cloud, vpc_id: str) -> None:
    """`doctor --destroy` names a security group that no stack would delete."""
    assert run("doctor", "--destroy", str(CONFIG)).code == 0
    ec2 = deployed.client("ec2")
    foreign = ec2.create_security_group(GroupName="by-hand", Description="d", VpcId=vpc_id)[
        "GroupId"
    ]
    done = run("doctor", "--destroy", str(CONFIG))
    assert done.code == 1
    assert (
        f"{foreign} (by-hand) is of no stack: aws ec2 delete-security-group --group-id {foreign}"
        in done.out
    )
    ec2.delete_security_group(GroupId=foreign)
    # Who joined a group, as docs/people.md says, keeps IAM from deleting it.
    iam = deployed.client("iam")
    [group] = [
        group["GroupName"]
        for group in iam.list_groups()["Groups"]
        if "PeopleTrainer" in group["GroupName"]
    ]
    iam.create_user(UserName="ada")
    iam.add_user_to_group(GroupName=group, UserName="ada")
    command = f"aws iam remove-user-from-group --group-name {group} --user-name ada"
    done = run("doctor", "--destroy", str(CONFIG))
    assert done.code == 1 and f"ada is in {group}, which IAM then keeps: {command}" in done.out
    done = run("leftovers", str(CONFIG))
    assert done.code == 0 and command in done.out
    iam.remove_user_from_group(GroupName=group, UserName="ada")
    iam.delete_user(UserName="ada")


def read_leftovers(done: Done) -> dict[str, dict[str, str]]:
    """Returns the parts that `leftovers --json` printed, by their ids."""
    return {part["id"]: part for part in json.loads(done.out)["left"]}


def check_leftovers_of_a_deployed_cluster(run: Run, outputs: dict[str, str]) -> None:
    done = run("leftovers", str(CONFIG), "--json")
    assert done.code == 0 and "`cdk destroy --all` removes it, and nothing else is left" in done.err
    left = read_leftovers(done)
    parts = {
        "cluster paddle",
        "stack paddle-storage",
        f"file-system {outputs['FileSystemId']}",
        "repository paddle/trainer",
    }
    assert parts | {outputs["BucketName"]} <= left.keys()
    assert {part["expected"] for part in left.values()} == {"deployed"}
    assert {part["command"].rpartition("-")[0] for part in left.values()} == {"cdk destroy paddle"}


def check_leftovers_of_a_half_destroyed_cluster(
    run: Run, deployed: Cloud, outputs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a part that no stack owns, and a stack that could not be deleted."""
    deployed.cdk("destroy", "paddle-cluster", "--force", config=CONFIG)
    deployed.client("logs").create_log_group(logGroupName="/aws/eks/paddle/cluster")
    done = run("leftovers", str(CONFIG), "--json")
    assert (
        done.code == 1
        and done.err
        == "cluster paddle is not gone from us-west-2 (1 left): run the commands above\n"
    )
    left = read_leftovers(done)
    assert (
        "cluster paddle" not in left
        and left[f"file-system {outputs['FileSystemId']}"]["expected"] == "deployed"
    )
    assert [part["command"] for part in left.values() if not part["expected"]] == [BY_HAND]
    ended = {
        "paddle-network": "DELETE_FAILED",
        "paddle-access": "UPDATE_COMPLETE",
        "paddle-storage": "CREATE_COMPLETE",
        "paddle-cluster": "DELETE_COMPLETE",
    }
    created = "2026-11-21T00:00:00Z"
    stacks = [
        {"StackName": name, "StackStatus": state, "CreationTime": created}
        for name, state in ended.items()
    ]
    with monkeypatch.context() as answered:
        aws = AwsApi(answered, upstream=True)
        aws.answer("cloudformation", "DescribeStacks", {"Stacks": stacks})
        done = run("leftovers", str(CONFIG))
        aws.refuse("cloudformation", "ListStackResources", "AccessDenied", "not you")
        assert run("leftovers", str(CONFIG)) == Done(
            3, "", "AWS refused ListStackResources: AccessDenied: not you\n"
        )
    row = next(line for line in done.out.splitlines() if f"vpc {outputs['VpcId']}" in line)
    assert (
        done.code == 1
        and row.split(maxsplit=3)[3]
        == "paddle-network is DELETE_FAILED  cdk destroy paddle-network"
    )
    deployed.client("logs").delete_log_group(logGroupName="/aws/eks/paddle/cluster")


def check_leftovers_of_a_destroyed_cluster(run: Run, deployed: Cloud, key: str) -> None:
    """A file system that an update had replaced is no stack's, and its key stays with it."""
    efs = deployed.client("efs")
    kept = efs.create_file_system(CreationToken="kept", Encrypted=True, KmsKeyId=key)[
        "FileSystemId"
    ]
    deployed.destroy(CONFIG)
    done = run("leftovers", str(CONFIG))
    assert done.code == 0 and f"it encrypts {kept}" in done.out, done.out + done.err
    efs.delete_file_system(FileSystemId=kept)
    done = run("leftovers", str(CONFIG))
    end = f"aws kms schedule-key-deletion --key-id {key.rpartition('/')[2]}"
    assert done.code == 1 and end in done.out, done.out + done.err
    deployed.client("kms").schedule_key_deletion(KeyId=key)
    done = run("leftovers", str(CONFIG))
    assert done.code == 0, done.out + done.err
    deployed.client("logs").create_log_group(logGroupName="/aws/eks/paddle/cluster")
    done = run("leftovers", str(CONFIG))
    assert done.code == 1 and BY_HAND in done.out
