"""`doctor`'s questions that no emulator answers: quotas, instance types, simulated policies, budgets."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_api import AwsApi, Parameters
from commands import Run

pytestmark = pytest.mark.slow

VARIANTS = Path(__file__).parents[1] / "aws" / "variants"
OWN = str(VARIANTS / "self-managed-cluster.yaml")
CONFIG = str(Path(__file__).parents[2] / "cluster.yaml")
USER = "arn:aws:iam::000000000000:user/me"
CASES = yaml.safe_load(Path(__file__).with_name("doctor.yaml").read_text())["cases"]


def said(run: Run, *arguments: str) -> dict[str, list[dict[str, str]]]:
    """Each check's findings, state: text."""
    found: dict[str, list[dict[str, str]]] = {}
    for one in json.loads(run("doctor", *arguments, "--json").out):
        found.setdefault(one["check"], []).append({one["state"]: one["text"]})
    return found


@pytest.mark.parametrize("name", CASES)
def test_what_a_check_says(run: Run, aws_api: AwsApi, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    case = CASES[name]
    monkeypatch.setenv("KUBECONFIG", "none")
    settings = {"retain": False, "region": "us-west-2", **case.get("settings", {})}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    config = VARIANTS / case["config"] if "config" in case else folder / "cluster.yaml"
    for operation, answer in case["answers"].items():
        (aws_api.refuse if isinstance(answer, str) else aws_api.answer)(*operation.split(), answer)
    found = said(run, str(config), *case.get("options", "").split())
    assert {check: found.get(check, []) for check in case["says"]} == case["says"]
    # Nothing else is ever changed.
    wanted = [{"CostAllocationTagsStatus": [{"TagKey": "cluster", "Status": "Active"}]}]
    changes = "ce UpdateCostAllocationTagsStatus" in case["answers"]
    assert aws_api.asked("UpdateCostAllocationTagsStatus") == (wanted if changes else [])


def test_fix_without_a_budget_is_refused(run: Run) -> None:
    done = run("doctor", CONFIG, "--fix")
    assert done.code == 2 and done.err.startswith("--fix activates the tag that budget.monthly_usd counts by")


NOBODY = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")


@pytest.mark.parametrize("destroy", [(), ("--destroy",)], ids=["deploy", "destroy"])
def test_without_an_account_nothing_is_well(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, destroy: Any) -> None:
    """`doctor && cdk deploy` must not go on, and every check is there all the same."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in NOBODY:
        monkeypatch.delenv(name, raising=False)
    words = "no AWS credentials were found: log in"
    done = run("doctor", CONFIG, *destroy)
    assert done.code == 3 and "the account cannot be asked" in done.err
    assert done.out.splitlines()[1].split(maxsplit=2)[:2] == ["credentials", "problem"] and words in done.out
    # Of several checks that say the same the one line.
    (same,) = [line for line in done.out.splitlines() if "not checked: " + words in line]
    assert ("(protection, load balancers, network" if destroy else "(zones, instance types, quotas: vCPUs") in same
    left = run("leftovers", CONFIG)
    assert left.code == 3 and left.err.startswith(words) and len(left.err.splitlines()) == 1


def test_expired_credentials_are_not_accepted(run: Run, aws_api: AwsApi) -> None:
    aws_api.refuse("sts", "GetCallerIdentity", "ExpiredToken", "The security token included in the request is expired")
    done = run("doctor", CONFIG)
    assert done.code == 3 and "AWS does not accept these credentials (ExpiredToken): log in again" in done.out


def simulated(api: AwsApi, *refused: str, apart: bool = False) -> None:
    """IAM's simulation for a user; an action or resource in whose name one of `refused` is, is denied.

    `apart`: of several resources AWS tells each one's decision below the action's.
    """
    api.answer("sts", "GetCallerIdentity", {"UserId": "AIDA", "Account": "000000000000", "Arn": USER})

    def answer(asked: Parameters) -> dict[str, Any]:
        assert asked["PolicySourceArn"] == USER
        results = []
        for action in asked["ActionNames"]:
            told = {
                arn: "implicitDeny" if any(word in f"{action} {arn}" for word in refused) else "allowed"
                for arn in asked["ResourceArns"]
            }
            each = [{"EvalResourceName": arn, "EvalResourceDecision": decision} for arn, decision in told.items()]
            one = {"EvalActionName": action, "EvalResourceName": "*", "EvalDecision": "allowed", "ResourceSpecificResults": each}
            single = [{"EvalActionName": action, "EvalResourceName": arn, "EvalDecision": told[arn]} for arn in told]
            results += [one] if apart else single
        return {"EvaluationResults": results}

    api.answer("iam", "SimulatePrincipalPolicy", answer)


def test_what_the_caller_may_not_is_named(run: Run, aws_api: AwsApi) -> None:
    simulated(aws_api)
    allowed = f"{USER} may take cdk's roles and deploy, and reach the cluster afterwards"
    assert said(run, CONFIG)["permissions"] == [{"ok": allowed}]
    advice = "take the operator's role, or join its group (docs/people.md)"
    simulated(aws_api, "file-publishing", "secretsmanager:GetSecretValue", apart=True)
    role = "arn:aws:iam::000000000000:role/cdk-tutorial-file-publishing-role-000000000000-us-west-2"
    secret = "arn:aws:secretsmanager:us-west-2:000000000000:secret:tutorial/kubeconfig/operator-*"
    assert said(run, OWN)["permissions"] == [
        {"problem": f"{USER} may not sts:AssumeRole on {role}, needed to deploy with cdk's roles: {advice}"},
        {"warning": f"{USER} may not secretsmanager:GetSecretValue on {secret}, needed to run `paddle-aws kubeconfig`: {advice}"},
    ]
    simulated(aws_api, "sts:AssumeRole")
    assert "deploy-role" in said(run, OWN)["permissions"][0]["problem"]
