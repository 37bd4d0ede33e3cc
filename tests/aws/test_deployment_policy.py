"""The deployment policy: small, narrow, and what AWS's own resource handlers call.

UPDATE_GOLDEN=1 pytest tests/aws/test_deployment_policy.py   writes stacks/deployment_actions.json and the table in the docs
anew; what is new in them is to be read, and what no template of ours asks for goes into `reviewed.unused`.
"""

import json
import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from settings.errors import SettingError
from stacks.deployment_policy import LIMIT, LOOK, documents, main, size, statements

from .conftest import FILES, Built

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
ACTIONS = PROJECT / "stacks" / "deployment_actions.json"
_CFNLINT = find_spec("cfnlint")
assert _CFNLINT is not None and _CFNLINT.origin is not None
AWS = Path(_CFNLINT.origin).parent / "data"


def templates(built: Built) -> dict[str, Any]:
    return {f"{built.spec.name}-{part}": template for part, template in built.templates.items()}


def policy(built: Built) -> list[dict[str, Any]]:
    files = documents(built.spec, templates(built)).values()
    return [statement for document in files for statement in document["Statement"]]


def from_aws(reviewed: dict[str, Any], types: set[str]) -> dict[str, Any]:
    """What cfn-lint's copies of AWS's resource schemas and service reference say of `types`."""
    files = json.loads((AWS / "schemas" / "providers" / "us-east-1.json").read_text())
    reference = json.loads((AWS / "AdditionalSpecs" / "Policies.json").read_text())
    handlers: dict[str, dict[str, str]] = {}
    names: dict[str, str] = {"AWS::Budgets::Budget": "BudgetName"}
    for kind in sorted(types):
        schema = json.loads((AWS / "schemas" / "resources" / f"{files[kind]}.json").read_text()) if kind in files else {}
        called, also = schema.get("handlers", {}), reviewed["also"].get(kind, {})
        unused = set(reviewed["unused"].get(kind, "").split())
        handlers[kind] = {
            operation: " ".join(
                sorted({*called.get(operation, {}).get("permissions", []), *also.get(operation, "").split()} - unused)
            )
            for operation in ("create", "update", "delete", "read")
        }
        last = kind.rpartition(":")[2]
        known = (f"{last}Name", "GroupName", "KeyName", "AliasName", "Name")
        names.update((kind, one) for one in reversed(known) if one in schema.get("properties", {}))
    actions: dict[str, str] = {}
    arns: dict[str, str] = {}
    for action in sorted({a for called in handlers.values() for calls in called.values() for a in calls.split()}):
        service, _, name = action.partition(":")
        resources = reference[service]["Actions"].get(name.lower(), {}).get("Resources", [])
        on = [one for one in resources if one in reviewed["kinds"][service].split()]
        assert on or not resources, f"{action} is called on {resources}: add the one of them that is ours to reviewed.kinds"
        actions[action] = " ".join(on).lower()
        arns |= {f"{service}:{one.lower()}": reference[service]["Resources"][one.lower()]["ARNFormats"][0] for one in on}
    arns = {kind: form.removesuffix(".*") for kind, form in sorted(arns.items())}
    return {"reviewed": reviewed, "handlers": handlers, "names": dict(sorted(names.items())), "actions": actions, "arns": arns}


def fresh(file: Path, found: str) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(found)
    assert file.read_text() == found, f"UPDATE_GOLDEN=1 pytest {Path(__file__).name} rewrites {file}"


def test_the_actions_are_those_of_aws_for_the_templates_of_all_variants(variant: Any) -> None:
    types = {
        resource["Type"]
        for name in FILES
        for template in variant(name).templates.values()
        for resource in template.get("Resources", {}).values()
    }
    ours = {kind for kind in types if not kind.startswith(("AWS::CloudFormation::", "AWS::CDK::"))}
    fresh(ACTIONS, json.dumps(from_aws(json.loads(ACTIONS.read_text())["reviewed"], ours), indent=1) + "\n")


def test_each_file_fits_into_a_managed_policy(each_variant: Any) -> None:
    files = documents(each_variant.spec, templates(each_variant))
    # A role holds ten.
    assert 1 <= len(files) <= 4
    for name, document in files.items():
        assert size(document) <= LIMIT, name
        assert all(statement["Action"] and statement["Resource"] for statement in document["Statement"])


def test_a_star_says_all_of_one_thing_only_where_there_is_no_other_way(each_variant: Any) -> None:
    """In an action, for what an Auto Scaling group looks at; as a resource, for looking and for what has no ARN yet."""
    for statement in policy(each_variant):
        assert not any("*" in action for action in statement["Action"] if action != "autoscaling:Describe*"), statement["Sid"]
        if "*" in statement["Resource"]:
            assert statement["Sid"] in ("Look", "MakeOurs", "WhatHasNoArn")
    look = next(statement for statement in policy(each_variant) if statement["Sid"] == "Look")
    assert all(re.fullmatch(LOOK, action) for action in look["Action"])


def test_a_type_that_no_variant_has_is_refused_by_name(shipped: Any) -> None:
    with pytest.raises(SettingError, match="a template has AWS::SQS::Queue: allowed are the types of tests/aws/variants"):
        statements(shipped.spec, {"paddle-queue": {"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}}})


def test_names_are_those_of_the_stacks_or_of_the_templates(variant: Any) -> None:
    """A cluster whose name is the beginning of another's has no right to what is the other's."""
    for statement in policy(variant("self-managed")):
        for arn in statement["Resource"]:
            service, name = arn.split(":")[2] if arn != "*" else "", arn.rpartition(":")[2].rpartition("/")[2]
            if service in ("iam", "s3", "sns", "lambda", "autoscaling") and "aws-service-role" not in arn and "oidc" not in arn:
                assert re.match(r"self-(access|network|storage|cluster|nodes|watch)-", name), arn


def test_a_long_name_is_met_as_cloudformation_shortens_it(built: Any) -> None:
    long = built(name="a-cluster-with-a-long-name")
    assert "arn:aws:iam::*:role/a-cluster-with-a-long-na*" in {arn for found in policy(long) for arn in found["Resource"]}


@pytest.mark.parametrize("name", ["cdk", "cdk-hnb659fds-cfn-exec-role"])
def test_the_names_of_the_bootstrap_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cluster.yaml").write_text(f"name: {name}\nretain: true\n")
    assert main(["--config", str(tmp_path / "cluster.yaml"), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.endswith(f"name is {name}: names that begin with cdk- belong to the CDK's bootstrap\n")
    assert not (tmp_path / "out").exists()


IAM, OURS, THEIRS = "arn:aws:iam::000000000000:", {"aws:resourcetag/cluster": "paddle"}, {"aws:resourcetag/cluster": "theirs"}
HERE = "us-west-2:000000000000"
ROUTE53 = "route53:changeresourcerecordsetsnormalized"
ADMINISTRATOR = {"iam:policyarn": "arn:aws:iam::aws:policy/AdministratorAccess"}
ESCALATIONS = [
    # (action, resource, condition keys): each leads to rights that the policy does not give.
    ("iam:CreateRole", IAM + "role/Administrator", {}),
    ("iam:CreateRole", IAM + "role/paddle-x", {}),
    ("iam:UpdateAssumeRolePolicy", IAM + "role/paddle-two-access-Operator", {}),
    ("iam:PutRolePolicy", IAM + "role/paddle-access-x", {}),
    ("iam:AttachRolePolicy", IAM + "role/paddle-access-x", ADMINISTRATOR),
    ("iam:AttachGroupPolicy", IAM + "group/paddle-access-x", ADMINISTRATOR),
    ("iam:AttachRolePolicy", IAM + "role/cdk-hnb659fds-cfn-exec-role-x", {"iam:policyarn": IAM + "policy/paddle-access-x"}),
    ("iam:CreatePolicyVersion", IAM + "policy/deployment/paddle-deploy-1", {}),
    ("iam:SetDefaultPolicyVersion", IAM + "policy/paddle-access-x", {}),
    ("iam:DeleteRolePermissionsBoundary", IAM + "role/paddle-access-x", {}),
    ("iam:PassRole", IAM + "role/Administrator", {"iam:passedtoservice": "ec2.amazonaws.com"}),
    ("iam:PassRole", IAM + "role/paddle-access-x", {"iam:passedtoservice": "cloudformation.amazonaws.com"}),
    ("iam:CreateServiceLinkedRole", IAM + "role/aws-service-role/x/y", {"iam:awsservicename": "organizations.amazonaws.com"}),
    ("iam:CreateUser", IAM + "user/paddle-access-x", {}),
    ("iam:CreateAccessKey", IAM + "user/administrator", {}),
    ("iam:AddUserToGroup", IAM + "group/paddle-access-x", {}),
    ("sts:AssumeRole", IAM + "role/paddle-access-x", {}),
    ("eks:CreateAccessEntry", f"arn:aws:eks:{HERE}:cluster/theirs", {}),
    ("ec2:CreateTags", f"arn:aws:ec2:{HERE}:vpc/vpc-1", THEIRS),
    ("ec2:DeleteVpc", f"arn:aws:ec2:{HERE}:vpc/vpc-1", THEIRS),
    ("ec2:DescribeInstanceAttribute", "*", {}),
    ("kms:PutKeyPolicy", f"arn:aws:kms:{HERE}:key/k", THEIRS),
    ("kms:ScheduleKeyDeletion", f"arn:aws:kms:{HERE}:key/k", {}),
    ("kms:TagResource", f"arn:aws:kms:{HERE}:key/k", {"kms:resourcealiases": ["alias/theirs"]}),
    ("kms:Decrypt", f"arn:aws:kms:{HERE}:key/k", OURS),
    ("kms:GenerateDataKeyWithoutPlaintext", f"arn:aws:kms:{HERE}:key/k", OURS),
    ("kms:CreateGrant", f"arn:aws:kms:{HERE}:key/k", {"kms:grantisforawsresource": "false"}),
    ("elasticfilesystem:PutFileSystemPolicy", f"arn:aws:elasticfilesystem:{HERE}:file-system/fs-1", THEIRS),
    ("elasticfilesystem:TagResource", f"arn:aws:elasticfilesystem:{HERE}:file-system/fs-1", THEIRS),
    ("elasticfilesystem:CreateMountTarget", f"arn:aws:elasticfilesystem:{HERE}:file-system/fs-1", THEIRS),
    ("lambda:GetFunction", f"arn:aws:lambda:{HERE}:function:theirs", {}),
    ("route53:ChangeResourceRecordSets", "arn:aws:route53:::hostedzone/Z", {ROUTE53 + "recordnames": ["www.theirs"]}),
    ("s3:PutBucketPolicy", "arn:aws:s3:::theirs", {}),
    ("s3:GetObject", "arn:aws:s3:::paddle-storage-x/data", {}),
    ("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{HERE}:secret:theirs", {}),
    ("ssm:GetParameters", f"arn:aws:ssm:{HERE}:parameter/password", {}),
]
NEEDED = [
    ("iam:CreateRole", IAM + "role/paddle-access-x", {}),
    ("iam:AttachRolePolicy", IAM + "role/paddle-access-x", {"iam:policyarn": IAM + "policy/paddle-access-x"}),
    ("iam:PassRole", IAM + "role/paddle-cluster-x", {"iam:passedtoservice": "eks.amazonaws.com"}),
    ("ec2:CreateTags", f"arn:aws:ec2:{HERE}:vpc/vpc-1", {"ec2:createaction": "CreateVpc"}),
    ("ec2:DeleteVpc", f"arn:aws:ec2:{HERE}:vpc/vpc-1", OURS),
    ("kms:PutKeyPolicy", f"arn:aws:kms:{HERE}:key/k", OURS),
    ("kms:GenerateDataKeyWithoutPlaintext", f"arn:aws:kms:{HERE}:key/k", {"kms:viaservice": "ec2.us-west-2.amazonaws.com"}),
    ("route53:ChangeResourceRecordSets", "arn:aws:route53:::hostedzone/Z", {ROUTE53 + "recordnames": ["api.paddle"]}),
    ("s3:PutBucketPolicy", "arn:aws:s3:::paddle-storage-x", {}),
]
# MiniStack's evaluator of policies, as the emulator asks it.
EVALUATE = """
import json, sys
from ministack.core.iam_evaluator import EvalContext, evaluate, parse_policy_document
given = json.load(sys.stdin)
account, policy = "000000000000", parse_policy_document({"Version": "2012-10-17", "Statement": given["statements"]})
for action, arn, keys in given["asked"]:
    asked = EvalContext(principal_arn="arn:aws:sts::000000000000:assumed-role/x/y", principal_type="AssumedRole",
        principal_account=account, action=action, resource_arn=arn, region="us-west-2", service_context=keys)
    print(evaluate(asked, [policy]).decision)
"""


def decisions(statements: list[dict[str, Any]], asked: list[tuple[str, str, dict[str, Any]]]) -> dict[str, str]:
    given = json.dumps({"statements": statements, "asked": asked})
    command = [str(PROJECT / ".venv-emulator" / "bin" / "python"), "-c", EVALUATE]
    said = subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout.split()
    return {f"{action} {arn} {keys}": one for (action, arn, keys), one in zip(asked, said, strict=True)}


def test_no_way_leads_to_more(shipped: Any) -> None:
    """Thirty-six escalations, thirty-six refusals; what is needed is allowed by the same evaluator."""
    found = decisions(policy(shipped), ESCALATIONS)
    assert {asked for asked, one in found.items() if one != "ImplicitDeny"} == set()
    found = decisions(policy(shipped), NEEDED)
    assert {asked for asked, one in found.items() if one != "Allow"} == set()


def test_the_table_in_the_docs_is_the_code(variant: Any) -> None:
    """Every statement that any variant has, and the resource types whose handlers need it."""
    rows: dict[str, set[str]] = {}
    for name in FILES:
        for statement in statements(variant(name).spec, templates(variant(name))):
            rows.setdefault(statement.sid, set()).update(kind.removeprefix("AWS::") for kind in statement.types)
    docs = PROJECT / "docs" / "deployment-policy.md"
    head, line, _ = docs.read_text().partition("| statement | for |\n|---|---|\n")
    fresh(docs, head + line + "".join(f"| `{sid}` | {', '.join(sorted(kinds))} |\n" for sid, kinds in sorted(rows.items())))


def test_the_program_writes_the_files_and_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(PROJECT / "cluster.yaml"), "--out", str(tmp_path)]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("aws ", "cdk "))]
    assert [line.split()[:3] for line in said] == [["aws", "iam", "create-policy"]] * (len(said) - 1) + [
        ["cdk", "bootstrap", "--cloudformation-execution-policies"]
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"paddle-deploy-{number}.json" for number in (1, 2, 3)]
    assert all("--path /deployment/ " in line for line in said[:-1]) and ":policy/deployment/paddle-deploy-3" in said[-1]


def test_bad_settings_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(tmp_path / "none.yaml")]) == 2
    assert capsys.readouterr().err.endswith("none.yaml is missing: name an existing settings file\n")
