"""Each reason for acknowledging a finding is a fact (reasons.yaml) in the template of every variant
that gives it.

A reason that reasons.yaml does not list fails: its author must state there what makes it true.
"""

import functools
import json
import re
import sys
from pathlib import Path
from typing import Any

import jmespath
import pytest
import yaml
from aws_cdk import CfnResource, Stack
from constructs import IConstruct

import paddle_aws.stacks.k3s_cluster
import paddle_aws.stacks.watch  # noqa: F401
from constructs_lib import acknowledged
from paddle_aws.stacks.cluster_spec import ClusterSpec

from .built import PROJECT, Built, by_type, listed
from .conftest import FILES

pytestmark = pytest.mark.slow

FACTS = yaml.safe_load(Path(__file__).with_name("reasons.yaml").read_text())
ACTIONS = PROJECT / "node_modules" / "@cloud-copilot" / "iam-data" / "data" / "actions"
"""AWS's Service Authorization Reference, as bundled with the tests' simulator."""
SESSION = re.compile("ssm:UpdateInstanceInformation|ssmmessages:(Create|Open)(Control|Data)Channel")


@functools.cache
def describe_action(action: str) -> dict[str, Any]:
    """Returns AWS's facts about an action."""
    service, name = action.lower().split(":")
    facts = {} if "*" in name else json.loads((ACTIONS / f"{service}.json").read_text())[name]
    reads, on = (
        facts.get("accessLevel") in ("List", "Read"),
        bool(facts.get("resourceTypes", [True])),
    )
    return {
        "Name": action,
        "Reads": reads,
        "OnResource": on,
        "Session": bool(SESSION.fullmatch(action)),
    }


def statements(resources: dict[str, Any]) -> list[dict[str, Any]]:
    policy_statements = []
    for resource in resources.values():
        for name in ("PolicyDocument", "KeyPolicy"):
            policy_statements += resource.get("Properties", {}).get(name, {}).get("Statement", [])
    for statement in policy_statements:
        statement["Actions"], statement["On"] = (
            listed(statement["Action"]),
            [acknowledged._spell(arn) for arn in listed(statement["Resource"])],
        )
        statement["Conditions"] = [
            key for keys in statement.get("Condition", {}).values() for key in keys
        ]
        facts = [describe_action(action) for action in statement["Actions"]]
        statement |= {
            "Reads": all(fact["Reads"] for fact in facts),
            "OnResource": any(fact["OnResource"] for fact in facts),
        }
    return policy_statements


def laid_out(built: Built, scope: IConstruct, findings: tuple[str, ...]) -> dict[str, Any]:
    """Returns the data that a fact's query searches, for one reason given for `scope`."""
    stack, spec = Stack.of(scope), built.spec
    template = json.loads(
        json.dumps(built.templates[stack.stack_name.removeprefix(f"{spec.name}-")])
    )
    ids = [
        str(stack.resolve(construct.logical_id))
        for construct in scope.node.find_all()
        if isinstance(construct, CfnResource)
    ]
    resources = {id: template["Resources"][id] for id in ids}
    policy_statements = statements(resources)
    about = {
        match[1] for finding in findings if (match := re.match(r".*\[Resource::(.*)\]$", finding))
    }
    named = [statement for statement in policy_statements if about & set(statement["On"])]
    assert named or not about, f"no statement is on {about}"
    places = [
        zone
        for resource in resources.values()
        for key in ("AvailabilityZone", "AvailabilityZones")
        for zone in listed(resource.get("Properties", {}).get(key, []))
    ]
    ours = "|".join((spec.name, spec.qualifier, spec.cluster_name))
    roles = [
        arn
        for resource in resources.values()
        for arn in resource.get("Properties", {}).get("ManagedPolicyArns", [])
    ]
    writes = [
        statement["Resource"]
        for statement in statements(template["Resources"])
        if "secretsmanager:PutSecretValue" in statement["Actions"]
    ]
    return {
        "own": by_type(resources),
        "beside": by_type(template["Resources"]),
        "app": by_type(
            {
                id: resource
                for other in built.templates.values()
                for id, resource in other.get("Resources", {}).items()
            }
        ),
        "outputs": template.get("Outputs", {}),
        "said": policy_statements,
        "named": named,
        "actions": [
            describe_action(action)
            for action in sorted({action for statement in named for action in statement["Actions"]})
        ],
        "findings": [
            re.sub(rf"(?<=[/-])({ours})(?=[/-])", "OURS", finding) for finding in findings
        ],
        "managed": sorted(acknowledged._spell(arn).rpartition("/")[2] for arn in roles),
        "zones": {
            "here": places,
            "unnamed": [zone for zone in places if zone not in spec.network.zones],
        },
        "written": json.dumps(writes),
    }


def test_every_reason_is_a_fact_in_every_variant() -> None:
    acknowledgements: list[tuple[IConstruct, str, tuple[str, ...]]] = []
    real = acknowledged.acknowledge

    def record(scope: IConstruct, reason: str, *findings: str) -> None:
        acknowledgements.append((scope, reason, findings))
        real(scope, reason, *findings)

    given, untrue = set(), []
    with pytest.MonkeyPatch.context() as patch:
        for module in list(sys.modules.values()):
            if getattr(module, "acknowledge", None) is real:
                patch.setattr(module, "acknowledge", record)
        for name, file in FILES.items():
            acknowledgements.clear()
            built = Built(ClusterSpec.load(file))
            for scope, reason, findings in acknowledgements:
                given.add(reason)
                if reason in FACTS and not jmespath.search(
                    FACTS[reason], laid_out(built, scope, findings)
                ):
                    untrue.append((name, scope.node.path, reason))
    assert given == FACTS.keys(), "say in reasons.yaml what makes it true"
    assert untrue == [], "\n".join(map(str, untrue))
