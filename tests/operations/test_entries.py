"""An EKS cluster's kubeconfig entry: its tokens are of a principal that the cluster admits.

AWS's answers are what the synthesized templates would give; nothing takes a role (tests/emulator).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_api import AwsApi, Parameters, Refused
from built import Built
from commands import Run

from paddle_aws.stacks.cluster_spec import ClusterSpec

pytestmark = pytest.mark.slow

ADA = "arn:aws:iam::000000000000:role/aws-reserved/sso.amazonaws.com/AWSReservedSSO_Ada_0123"
GROUPS = {
    "operator": "paddle-administrators",
    "trainer": "paddle-deployers",
    "reader": "paddle-readers",
}


@pytest.fixture(scope="module")
def made() -> Built:
    cluster = {"administrators": [ADA], "public_access_from": ["203.0.113.7/32"]}
    return Built(ClusterSpec.model_validate({"retain": False, "cluster": cluster}))


@pytest.fixture
def groups(made: Built) -> dict[str, list[str]]:
    """The Kubernetes groups of each principal that the templates admit."""
    return {
        made.resolved("cluster", entry["PrincipalArn"]): entry["KubernetesGroups"]
        for entry in made.resources("AWS::EKS::AccessEntry", "cluster")
        if "KubernetesGroups" in entry
    }


@pytest.fixture
def deployed(made: Built, aws_api: AwsApi, tmp_path: Path, monkeypatch: Any) -> AwsApi:
    monkeypatch.chdir(tmp_path)
    settings = made.spec.model_dump(mode="json", exclude_unset=True)
    Path("cluster.yaml").write_text(yaml.safe_dump(settings))
    outputs = [
        {"OutputKey": name, "OutputValue": made.resolved("access", output["Value"])}
        for name, output in made.templates["access"]["Outputs"].items()
        if name.endswith("RoleArn")
    ]
    stack = {
        "StackName": "paddle-access",
        "StackStatus": "CREATE_COMPLETE",
        "CreationTime": "2026-11-21T00:00:00Z",
        "Outputs": outputs,
    }
    cluster = {
        "name": "paddle",
        "arn": "arn:aws:eks:us-west-2:000000000000:cluster/paddle",
        "status": "ACTIVE",
        "endpoint": "https://abc.eks.example",
    }
    aws_api.answer("eks", "DescribeCluster", {"cluster": cluster})
    aws_api.answer("cloudformation", "DescribeStacks", {"Stacks": [stack]})
    come_as(aws_api, "arn:aws:iam::000000000000:user/me")
    return aws_api


def come_as(aws_api: AwsApi, arn: str) -> None:
    caller = {"UserId": "AIDA", "Account": "000000000000", "Arn": arn}
    aws_api.answer("sts", "GetCallerIdentity", caller)


def role_of_entry(run: Run, *options: str) -> str | None:
    """Writes the entry and returns the role that its tokens are of; None: the caller's own."""
    done = run("kubeconfig", "--file", "config", *options)
    assert done.code == 0, done.err
    [user] = yaml.safe_load(Path("config").read_text())["users"]
    words = user["user"]["exec"]["args"]
    return words[words.index("--role-arn") + 1] if "--role-arn" in words else None


@pytest.mark.parametrize("team", GROUPS)
def test_a_teams_tokens_are_of_a_role_that_the_template_admits(
    run: Run, deployed: AwsApi, groups: dict[str, list[str]], team: str
) -> None:
    assert groups[role_of_entry(run, "--team", team) or ""] == [GROUPS[team]]


def test_without_a_team_the_tokens_are_the_operators(
    run: Run, deployed: AwsApi, groups: dict[str, list[str]]
) -> None:
    assert groups[role_of_entry(run) or ""] == [GROUPS["operator"]]


def test_who_has_an_entry_of_its_own_takes_no_role(
    run: Run, deployed: AwsApi, groups: dict[str, list[str]]
) -> None:
    come_as(deployed, "arn:aws:sts::000000000000:assumed-role/AWSReservedSSO_Ada_0123/ada")
    assert ADA in groups and role_of_entry(run) is None
    assert groups[role_of_entry(run, "--team", "reader") or ""] == [GROUPS["reader"]]
    # No policy lets a role take itself.
    [trainer] = [arn for arn, group in groups.items() if group == [GROUPS["trainer"]]]
    name = trainer.rpartition("/")[2]
    come_as(deployed, f"arn:aws:sts::000000000000:assumed-role/{name}/me")
    assert role_of_entry(run, "--team", "trainer") is None


def test_a_member_may_ask_for_the_access_stack_alone(run: Run, deployed: AwsApi) -> None:
    answer = deployed.answers[("cloudformation", "DescribeStacks")]

    def describe(given: Parameters) -> dict[str, Any] | None:
        if given.get("StackName") != "paddle-access":
            raise Refused("AccessDenied", "not you")
        return answer(given)

    deployed.answer("cloudformation", "DescribeStacks", describe)
    assert "TrainerRole" in (role_of_entry(run, "--team", "trainer") or "")


def test_root_is_told_at_once(run: Run, deployed: AwsApi) -> None:
    come_as(deployed, "arn:aws:iam::000000000000:root")
    done = run("kubeconfig", "--file", "config")
    assert done.code == 2 and "root, which may take no role" in done.err
    assert not Path("config").exists()
