"""The deployment policy is small and narrow, and allows what AWS's own resource handlers call.

`UPDATE_GOLDEN=1 pytest tests/aws/test_deployment_policy.py` rewrites
paddle_aws/stacks/deployment_actions.json. Review what is new in it, and put what none of our
templates needs into `unused` of handler_calls.json; its `also` has the calls that AWS's schemas
leave out.
"""

import functools
import json
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_aws.stacks.deployment_policy import LIMIT, WRITTEN, Policies, main, size
from paddle_settings.errors import SettingError

from .built import PROJECT, Built, listed
from .conftest import CFNLINT, FILES
from .simulator import ACCOUNT, ALLOWED, DENIED, REFUSED, Request, decisions

pytestmark = pytest.mark.slow

ACTIONS = PROJECT / "paddle_aws/stacks/deployment_actions.json"
HANDLER_CALLS: dict[str, Any] = json.loads(
    Path(__file__).with_name("handler_calls.json").read_text()
)
"""What AWS's schemas say too much, and too little, of the handlers' calls, by resource type."""


class Restricted(Built):
    """A variant as a restricted deployer deploys it."""

    @functools.cached_property
    def files(self) -> dict[str, dict[str, Any]]:
        return Policies(
            self.spec,
            {f"{self.spec.name}-{part}": template for part, template in self.templates.items()},
        ).documents()

    @functools.cached_property
    def policy(self) -> list[dict[str, Any]]:
        """The deployer's statements."""
        return [
            statement
            for name, document in self.files.items()
            if "-deploy-" in name
            for statement in document["Statement"]
        ]


@functools.cache
def restricted(name: str) -> Restricted:
    return Restricted(ClusterSpec.load(FILES[name]).model_copy(update={"deployer": "restricted"}))


@pytest.fixture(params=[name for name in FILES if name != "auto"])
def deployment(request: pytest.FixtureRequest) -> Restricted:
    return restricted(request.param)


def from_aws(reviewed: dict[str, Any], types: set[str]) -> dict[str, Any]:
    """Returns what cfn-lint's copies of AWS's resource schemas and service reference say about
    `types`.
    """
    files = json.loads((CFNLINT / "schemas" / "providers" / "us-east-1.json").read_text())
    reference = json.loads((CFNLINT / "AdditionalSpecs" / "Policies.json").read_text())
    handlers: dict[str, dict[str, str]] = {}
    names: dict[str, str] = {"AWS::Budgets::Budget": "BudgetName"}
    for kind in sorted(types):
        schema = (
            json.loads((CFNLINT / "schemas" / "resources" / f"{files[kind]}.json").read_text())
            if kind in files
            else {}
        )
        called, also = schema.get("handlers", {}), HANDLER_CALLS["also"].get(kind, {})
        unused = set(HANDLER_CALLS["unused"].get(kind, "").split())
        handlers[kind] = {}
        for operation in ("create", "update", "delete", "read"):
            calls = {
                *called.get(operation, {}).get("permissions", []),
                *also.get(operation, "").split(),
            }
            handlers[kind][operation] = " ".join(sorted(calls - unused))
        last = kind.rpartition(":")[2]
        name_keys = (f"{last}Name", "GroupName", "KeyName", "AliasName", "Name")
        names.update(
            (kind, key) for key in reversed(name_keys) if key in schema.get("properties", {})
        )
    actions: dict[str, str] = {}
    arns: dict[str, str] = {}
    for action in sorted(
        {a for called in handlers.values() for calls in called.values() for a in calls.split()}
    ):
        service, _, name = action.partition(":")
        resources = reference[service]["Actions"].get(name.lower(), {}).get("Resources", [])
        on = [resource for resource in resources if resource in reviewed["kinds"][service].split()]
        assert on or not resources, (
            f"{action} is called on {resources}: add the one of them that is ours to reviewed.kinds"
        )
        actions[action] = " ".join(on).lower()
        arns |= {
            f"{service}:{resource.lower()}": reference[service]["Resources"][resource.lower()][
                "ARNFormats"
            ][0]
            for resource in on
        }
    arns = {kind: form.removesuffix(".*") for kind, form in sorted(arns.items())}
    return {
        "reviewed": reviewed,
        "handlers": handlers,
        "names": dict(sorted(names.items())),
        "actions": actions,
        "arns": arns,
    }


def test_the_actions_are_those_of_aws_for_the_templates_of_all_variants(types: set[str]) -> None:
    ours = types | {"Custom::EmptyBucket", "Custom::UnusedKey"}
    text = json.dumps(from_aws(json.loads(ACTIONS.read_text())["reviewed"], ours), indent=1) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        ACTIONS.write_text(text)
    assert ACTIONS.read_text() == text, (
        f"UPDATE_GOLDEN=1 pytest {Path(__file__).name} rewrites {ACTIONS}"
    )


def test_each_file_fits_into_a_managed_policy(deployment: Restricted) -> None:
    # A role can hold ten.
    assert 1 <= sum("-deploy-" in name for name in deployment.files) <= 4
    assert all(size(document) <= LIMIT for document in deployment.files.values())


def test_a_star_says_all_of_one_thing_only_where_there_is_no_other_way(
    deployment: Restricted,
) -> None:
    """In an action: only for what an Auto Scaling group looks up. As a resource: only for lookups
    and for what has no ARN yet.
    """
    for statement in deployment.policy:
        if statement["Effect"] == "Deny":
            continue
        assert not any(
            "*" in action for action in statement["Action"] if action != "autoscaling:Describe*"
        ), statement["Sid"]
        if "*" in statement["Resource"]:
            assert statement["Sid"] in ("Look", "MakeOurs", "WhatHasNoArn")
    look = next(statement for statement in deployment.policy if statement["Sid"] == "Look")
    assert all(re.fullmatch(WRITTEN["conditions"][0][0], action) for action in look["Action"])


def test_a_type_that_no_variant_has_is_refused_by_name() -> None:
    with pytest.raises(
        SettingError,
        match="a template has AWS::SQS::Queue: allowed are the types of tests/aws/variants",
    ):
        Policies(
            restricted("shipped").spec,
            {"paddle-queue": {"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}}},
        ).statements()


def test_names_are_those_of_the_stacks_or_of_the_templates() -> None:
    """A cluster whose name is a prefix of another's has no rights to the other's resources."""
    for statement in restricted("self-managed").policy:
        for arn in statement["Resource"]:
            service, name = (
                arn.split(":")[2] if arn != "*" else "",
                arn.rpartition(":")[2].rpartition("/")[2],
            )
            if (
                service in ("iam", "s3", "sns", "lambda", "autoscaling")
                and "aws-service-role" not in arn
                and "oidc" not in arn
            ):
                assert re.match(r"self-(access|network|storage|cluster|nodes|watch)-", name), arn


def test_a_long_name_is_met_as_cloudformation_shortens_it() -> None:
    settings = {"name": "a-cluster-with-a-long-name", "deployer": "restricted", "retain": False}
    policy = Restricted(ClusterSpec.model_validate(settings)).policy
    assert "arn:aws:iam::*:role/a-cluster-with-a-long-na*" in {
        arn for statement in policy for arn in statement["Resource"]
    }


Asked = tuple[str, str, dict[str, Any]]
IAM = f"arn:aws:iam::{ACCOUNT}:"
ROLE = IAM + "role/paddle-access-x"
ASKED: dict[str, list[Asked]] = {
    part: [(action, on, given) for action, on, given in listed]
    for part, listed in yaml.safe_load(
        Path(__file__).with_name("escalations.yaml").read_text()
    ).items()
}
EVERYTHING = [{"Effect": "Allow", "Action": "*", "Resource": "*"}]

# Lets IAM decide about a key: without this statement no IAM policy counts.
OPEN_KEY = [
    {"Effect": "Allow", "Principal": {"AWS": IAM + "root"}, "Action": "kms:*", "Resource": "*"}
]


def answers(
    asked: list[Asked], allowed: list[dict[str, Any]], principal: str = ROLE, **more: Any
) -> dict[str, list[str]]:
    """Returns the requests by decision."""
    requests = [
        Request(
            action,
            on,
            {"aws:PrincipalArn": principal, "aws:PrincipalAccount": ACCOUNT, **given},
            principal,
        )
        for action, on, given in asked
    ]
    by_decision: dict[str, list[str]] = {}
    for request, decision in zip(
        asked, decisions(allowed, requests, key_policy=OPEN_KEY, **more), strict=True
    ):
        by_decision.setdefault(decision, []).append(str(request))
    return by_decision


def test_no_way_leads_to_more() -> None:
    """Some hundred escalations are each refused; the same simulation allows what is needed."""
    allowed = restricted("shipped").policy
    assert list(decided := answers(ASKED["escalations"], allowed)) == [REFUSED], decided
    assert list(decided := answers(ASKED["beside"], allowed)) == [DENIED], decided
    assert list(decided := answers(ASKED["needed"], allowed)) == [ALLOWED], decided
    allowed = restricted("lustre").policy
    assert list(decided := answers(ASKED["escalations on FSx"], allowed)) == [REFUSED], decided
    assert list(decided := answers(ASKED["needed of FSx"], allowed)) == [ALLOWED], decided


def test_a_role_with_any_policy_stays_within_its_boundary() -> None:
    """The two-step detour: a role that anybody may assume, with a policy that allows everything."""
    limit = restricted("shipped").files["paddle-us-west-2-boundary"]["Statement"]
    assert set(by_decision := answers(ASKED["beyond"], EVERYTHING, boundary=limit)) == {
        REFUSED,
        DENIED,
    }, by_decision
    assert list(by_decision := answers(ASKED["within"], EVERYTHING, boundary=limit)) == [ALLOWED], (
        by_decision
    )


def test_a_boundary_allows_what_the_roles_are_given(deployment: Restricted) -> None:
    """The boundary allows each action of each role's own policies on the resource that the policy
    names.
    """
    limit = deployment.files[f"{deployment.spec.policy_prefix}-boundary"]["Statement"]
    asked = [
        (action, deployment.resolved(stack, on))
        for stack in deployment.templates
        for policy in deployment.resources("AWS::IAM::ManagedPolicy", stack)
        for statement in policy["PolicyDocument"]["Statement"]
        for action in listed(statement["Action"])
        for on in listed(statement["Resource"])
        if statement["Effect"] == "Allow"
    ]
    assert len(asked) > 20
    owned = {action for action, on in asked if on.split(":")[2:3] == [action.partition(":")[0]]}
    for action, on in asked:
        # The resource is for another action of the same statement.
        others = action in owned and on != "*" and on.split(":")[2] != action.partition(":")[0]
        assert others or any(
            statement["Effect"] == "Allow"
            and any(fnmatchcase(action, pattern) for pattern in statement["Action"])
            and any(fnmatchcase(on, pattern) for pattern in statement["Resource"])
            for statement in limit
        ), (action, on)
    for kind in ("AWS::IAM::Role", "AWS::IAM::User"):
        for role in deployment.resources(kind):
            assert json.dumps(role["PermissionsBoundary"]).endswith(
                f':policy/deployment/{deployment.spec.policy_prefix}-boundary"]]}}'
            )


@pytest.mark.parametrize(
    ("part", "role", "decision"),
    [
        ("stacks of others", "deploy", DENIED),
        ("own stacks", "deploy", ALLOWED),
        ("beyond a look", "lookup", DENIED),
        ("a look", "lookup", ALLOWED),
    ],
)
def test_the_bootstrap_changes_no_stack_of_others(part: str, role: str, decision: str) -> None:
    """CloudFormation uses the role that a stack was last given: changing another's stack would
    confer that role's rights.
    """
    limit = restricted("shipped").files["paddle-us-west-2-bootstrap"]["Statement"]
    principal = IAM + f"role/cdk-paddle-{role}-role-000000000000-us-west-2"
    assert list(by_decision := answers(ASKED[part], EVERYTHING, principal, boundary=limit)) == [
        decision
    ], by_decision


def test_a_group_lets_its_members_take_their_role_and_holds_nothing_else(
    deployment: Restricted,
) -> None:
    """A boundary does not limit a group, so the policies that a group holds are out of a
    deployment's reach.
    """
    name = deployment.spec.name
    for team in ("Operator", "Trainer", "Reader"):
        held = deployment.files[f"{deployment.spec.policy_prefix}-{team.lower()}"]["Statement"]
        roles = {
            member: IAM + f"role/{name}-access-People{member}RoleCD19D991-x"
            for member in ("Operator", "Trainer", "Reader")
        }
        by_decision = answers([("sts:AssumeRole", role, {}) for role in roles.values()], held)
        assert by_decision[ALLOWED] == [str(("sts:AssumeRole", roles[team], {}))]
        [group] = [
            group
            for key, group in deployment.whole("AWS::IAM::Group", "access").items()
            if team in key
        ]
        assert f":policy/deployment/{deployment.spec.policy_prefix}-{team.lower()}" in json.dumps(
            group["Properties"]["ManagedPolicyArns"]
        )
    assert not any(
        policy.get("Groups") for policy in deployment.resources("AWS::IAM::ManagedPolicy")
    )


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("cluster.yaml", "deployer is administrator: set it restricted"),
        ("none.yaml", "none.yaml is missing: name an existing"),
    ],
)
def test_what_needs_no_policy_gets_a_sentence(
    config: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        main(PROJECT / config, tmp_path / "out")
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
