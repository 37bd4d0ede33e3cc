"""Why a finding of cdk-nag, the CDK's validation (W...), checkov (CKV_) or cfn-lint (cfn-lint:...) does not fit one construct,
said next to that construct. A test fails on an acknowledgment that no construct needs any more.
"""

import re
from typing import Any

from aws_cdk import Acknowledgment, CfnResource, Stack, Validations
from constructs import IConstruct

_LINT = "cfn-lint:"
_PACKS = {"AwsSolutions-": "AwsSolutions", "NIST.800.53.R5-": "NIST.800.53.R5", "W": "CloudFormation-Validate"}


def acknowledge(scope: IConstruct, reason: str, *findings: str) -> None:
    """Says that `findings` about `scope`, or about what is below it, are known, and why they stand.

    A finding of checkov or cfn-lint is about one resource: `scope` itself, or its default child; with a stack as scope,
    cfn-lint's is about all of its template.
    """
    checks = [finding for finding in findings if finding.startswith("CKV_")]
    lint = [finding for finding in findings if finding.startswith(_LINT)]
    rules = [finding for finding in findings if finding not in (*checks, *lint)]
    if rules:
        record(scope, [Acknowledgment(id=f"{_pack(rule)}::{rule}", reason=reason) for rule in rules])
    if checks:
        _skip(scope, reason, checks)
    if lint:
        _ignore(scope, [finding.removeprefix(_LINT) for finding in lint])


def record(scope: IConstruct, rules: list[Acknowledgment]) -> None:
    """Tells the CDK; the test of left-over acknowledgments puts itself in this place."""
    Validations.of(scope).acknowledge(*rules)


def _resource(scope: IConstruct) -> CfnResource:
    resource = scope.node.default_child or scope
    assert isinstance(resource, CfnResource), f"{scope.node.path} is no single resource: this tool's findings are about one"
    return resource


def _ignore(scope: IConstruct, rules: list[str]) -> None:
    """cfn-lint's metadata has no place for a reason: the call has it."""

    def added(before: Any) -> dict[str, Any]:
        known = (before or {}).get("config", {}).get("ignore_checks", [])
        return {"config": {"ignore_checks": [*known, *rules]}}

    if isinstance(scope, Stack):
        options = scope.template_options
        metadata = options.metadata or {}
        options.metadata = {**metadata, "cfn-lint": added(metadata.get("cfn-lint"))}
    else:
        resource = _resource(scope)
        resource.add_metadata("cfn-lint", added(resource.get_metadata("cfn-lint")))


def _skip(scope: IConstruct, reason: str, checks: list[str]) -> None:
    resource = _resource(scope)
    before = (resource.get_metadata("checkov") or {}).get("skip", [])
    resource.add_metadata("checkov", {"skip": [*before, *({"id": check, "comment": reason} for check in checks)]})


def managed_policies(*names: str) -> list[str]:
    """Findings about AWS's own managed policies."""
    return [f"AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{name}]" for name in names]


def wildcards(scope: IConstruct, *resources: str) -> list[str]:
    """Findings about resources of a policy in `scope`'s stack that hold a star."""
    stack = Stack.of(scope)
    return [f"AwsSolutions-IAM5[Resource::{_spelled(stack.resolve(resource))}]" for resource in resources]


def _pack(finding: str) -> str:
    return next(pack for prefix, pack in _PACKS.items() if finding.startswith(prefix))


def _spelled(value: Any) -> str:
    """A resolved value as cdk-nag spells it."""
    if isinstance(value, str):
        return re.sub(r"\$\{([^}]+)\}", r"<\1>", value)
    ((function, argument),) = value.items()
    if function == "Fn::Join":
        return str(argument[0]).join(_spelled(part) for part in argument[1])
    if function == "Fn::GetAtt":
        return f"<{'.'.join(argument)}>"
    if function == "Fn::ImportValue":
        return _spelled(argument)
    return f"<{argument}>"
