"""The deployment policy: small, narrow, and neither more nor less than AWS's own resource handlers call."""

import functools
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from stacks.cluster_spec import ClusterSpec
from stacks.deployment_policy import LIMIT, documents, main, size, statements, table

pytestmark = pytest.mark.slow

_CFNLINT = find_spec("cfnlint")
assert _CFNLINT is not None and _CFNLINT.origin is not None
SCHEMAS = Path(_CFNLINT.origin).parent / "data" / "schemas"
READ = re.compile(r"^[a-z0-9-]+:(Describe|List|Get|View)")

# Called by a service in the caller's name, not by a handler of CloudFormation: which handler lists them?
BY_SERVICES = {
    "autoscaling:TerminateInstanceInAutoScalingGroup": "CloudFormation itself, in a rolling update",
    "ec2:CreateNetworkInterface": "EFS, for a mount target",
    "ec2:DeleteNetworkInterface": "EFS, for a mount target",
    "ec2:ModifyNetworkInterfaceAttribute": "EFS, for a mount target",
    "ec2:ModifyLaunchTemplate": "EC2's default version, when a template changes",
    "lambda:InvokeFunction": "CloudFormation itself, for the custom resource",
    "route53:AssociateVPCWithHostedZone": "EC2, for an endpoint's private name",
}


@functools.cache
def _names() -> dict[str, str]:
    names: dict[str, str] = json.loads((SCHEMAS / "providers" / "us-east-1.json").read_text())
    return names


@functools.cache
def _schema(kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((SCHEMAS / "resources" / f"{_names()[kind]}.json").read_text())
    return schema


def _handlers(kind: str) -> set[str]:
    schema = _schema(kind)
    return {action for handler in schema.get("handlers", {}).values() for action in handler.get("permissions", [])}


def _types(cluster: Any) -> set[str]:
    return {
        resource["Type"]
        for template in cluster.templates.values()
        for resource in template.get("Resources", {}).values()
        if not resource["Type"].startswith(("Custom::", "AWS::CloudFormation::", "AWS::CDK::"))
    }


def test_each_file_fits_into_a_managed_policy(each_variant: Any) -> None:
    files = documents(each_variant.spec)
    # A role holds ten.
    assert 1 <= len(files) <= 4
    for name, document in files.items():
        assert size(document) <= LIMIT, name


def test_stars_in_actions_read_and_nothing_else(each_variant: Any) -> None:
    for statement in statements(each_variant.spec):
        for action in statement.actions:
            if "*" in action:
                assert READ.match(action), (statement.sid, action)


def test_every_resource_is_named_where_something_is_changed(each_variant: Any) -> None:
    """What does not exist yet has no ARN: kms:CreateKey and route53:CreateHostedZone are the exceptions."""
    stars = {s.sid for s in statements(each_variant.spec) if s.resources == ("*",) and not all(READ.match(a) for a in s.actions)}
    assert stars <= {"NewKey", "NewZone"}


def test_no_role_but_ours_is_handed_on_and_no_policy_but_known_ones_attached(each_variant: Any) -> None:
    found = {statement.sid: statement for statement in statements(each_variant.spec)}
    name = each_variant.spec.name
    for sid in ("HandOnRoles", "Roles", "Attach"):
        for resource in found[sid].resources:
            assert re.fullmatch(rf"arn:aws:iam::\*:(role|group)/{name}-\*", resource)
    assert "iam:PassedToService" in found["HandOnRoles"].conditions["StringEquals"]
    assert not any("Administrator" in arn for arn in found["Attach"].conditions["ArnLike"]["iam:PolicyARN"])


def test_nothing_is_allowed_that_no_handler_of_these_types_calls(each_variant: Any) -> None:
    """The source is AWS's resource schemas, which cfn-lint brings along."""
    called = set().union(*(_handlers(kind) for kind in _types(each_variant)))
    allowed = {action for statement in statements(each_variant.spec) for action in statement.actions if "*" not in action}
    idle = {action for action in allowed - called - set(BY_SERVICES) if not READ.match(action)}
    assert idle == set()


@pytest.mark.parametrize("handler", ["create", "delete", "read"])
def test_the_main_action_of_each_type_is_allowed(each_variant: Any, handler: str) -> None:
    patterns = [
        re.compile(action.replace("*", ".*")) for statement in statements(each_variant.spec) for action in statement.actions
    ]
    for kind in _types(each_variant):
        schema = _schema(kind)
        service = {"EFS": "elasticfilesystem"}.get(kind.split("::")[1], kind.split("::")[1].lower())
        verbs = {"create": "Create|Put|Modify", "delete": "Delete|Schedule", "read": "Describe|Get|View|List"}[handler]
        wanted = [a for a in schema["handlers"].get(handler, {}).get("permissions", []) if re.match(f"{service}:({verbs})", a)]
        for action in wanted:
            if action.partition(":")[2] in NOT_OURS:
                continue
            assert any(pattern.fullmatch(action) for pattern in patterns), (kind, action)


# Asked for by properties that no template of ours has.
NOT_OURS = {
    *("CreateVpcEncryptionControl", "CreateReplicationConfiguration", "DeleteReplicationConfiguration", "PutFunctionConcurrency"),
    *("PutFunctionRecursionConfig", "PutFunctionScalingConfig", "PutRuntimeManagementConfig", "PutNotificationConfiguration"),
    *("CreateInstanceProfile", "DeleteInstanceProfile", "CreateLogDelivery", "PutBearerTokenAuthentication", "PutIndexPolicy"),
    *("PutDataProtectionPolicy", "PutResourcePolicy", "DeleteDataProtectionPolicy", "CreateQueryLoggingConfig"),
    *("DeleteQueryLoggingConfig", "CreateBucketMetadataTableConfiguration", "PutAccelerateConfiguration", "PutObjectAcl"),
    *("PutAnalyticsConfiguration", "PutBucketAbac", "PutBucketCORS", "PutBucketNotification", "PutBucketReplication"),
    *("PutBucketObjectLockConfiguration", "PutBucketWebsite", "PutIntelligentTieringConfiguration", "DeleteObject"),
    *("PutInventoryConfiguration", "PutMetricsConfiguration", "PutObjectLockConfiguration", "PutReplicationConfiguration"),
    *("PutGroupPolicy", "PutRolePolicy", "DeleteGroupPolicy", "DeleteRolePolicy", "PutUserPolicy", "DeleteUserPolicy"),
    *("GetAccelerateConfiguration", "SetRepositoryPolicy", "ModifyPublicIpDnsNameOptions", "ModifyVolumeAttribute"),
}


def test_the_table_in_the_docs_is_the_code(project: Path) -> None:
    """Every statement that any settings need."""
    everything = ClusterSpec.model_validate(
        {
            "retain": False,
            "network": {"interface_endpoints": True},
            "cluster": {"oidc_provider": True},
            "nodes": {
                "managed": {},
                "own": {"kind": "self-managed", "placement_group": True, "availability_zones": ["us-west-2a"]},
            },
            "logs": {"days": 30},
            "budget": {"monthly_usd": 1, "emails": ["a@b.de"]},
        }
    )
    own = ClusterSpec.model_validate(
        {
            "retain": True,
            "cluster": {"kind": "self-managed", "elastic_ip": True, "ssh": {"allowed_from": ["10.0.0.0/16"]}},
        }
    )
    assert (project / "docs" / "deployment-policy.md").read_text().endswith(table(everything, own) + "\n")


def test_the_program_writes_the_files_and_says_what_to_do(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", str(project / "cluster.yaml"), "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in said] == [["aws", "iam", "create-policy"]] * (len(said) - 1) + [
        ["cdk", "bootstrap", "--cloudformation-execution-policies"]
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["paddle-deploy-1.json", "paddle-deploy-2.json"]


def test_bad_settings_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(tmp_path / "none.yaml")]) == 2
    assert capsys.readouterr().err.endswith("none.yaml is missing: name an existing settings file\n")
