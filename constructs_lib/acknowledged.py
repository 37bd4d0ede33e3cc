"""Records next to a construct why a finding of cdk-nag, the CDK's validation (W...), checkov (CKV_)
or cfn-lint (cfn-lint:...) does not apply to it. A test fails on any acknowledgment that no
construct needs any more.
"""

import re
from typing import Any

from aws_cdk import Acknowledgment, CfnResource, Stack, Validations
from constructs import IConstruct

OPT_OUT = "paddle-aws:acknowledgements"
"""Context key: with `false`, no finding is acknowledged, so that the app's owners judge all of
them.
"""
EVERY_RESOURCE = "AwsSolutions-IAM5[Resource::*]"
"""The finding about a policy's statement on every resource."""
_LINT = "cfn-lint:"
_PACKS = {
    "AwsSolutions-": "AwsSolutions",
    "NIST.800.53.R5-": "NIST.800.53.R5",
    "W": "CloudFormation-Validate",
}


def acknowledge(scope: IConstruct, reason: str, *findings: str) -> None:
    """Acknowledges `findings` about `scope`, or about constructs below it, with the reason.

    A finding of checkov or cfn-lint is about one resource: `scope` itself, or its default child. If
    `scope` is a stack, a cfn-lint finding is about its whole template.
    """
    if scope.node.try_get_context(OPT_OUT) in (False, "false"):
        return
    rules = []
    for finding in findings:
        if finding.startswith("CKV_"):
            _add(scope, "checkov", ("skip",), {"id": finding, "comment": reason})
        elif finding.startswith(_LINT):
            # cfn-lint's metadata has no field for the reason: only the call states it.
            _add(scope, "cfn-lint", ("config", "ignore_checks"), finding.removeprefix(_LINT))
        else:
            pack = next(pack for prefix, pack in _PACKS.items() if finding.startswith(prefix))
            rules.append(Acknowledgment(id=f"{pack}::{finding}", reason=reason))
    if rules:
        record(scope, rules)


def record(scope: IConstruct, rules: list[Acknowledgment]) -> None:
    """Passes `rules` to the CDK. The test for left-over acknowledgments replaces this function."""
    Validations.of(scope).acknowledge(*rules)


def _add(scope: IConstruct, tool: str, path: tuple[str, ...], entry: Any) -> None:
    """Appends `entry` to the list at `path` in a tool's metadata."""
    if isinstance(scope, Stack):
        options = scope.template_options
        metadata = options.metadata or {}
        options.metadata = {**metadata, tool: _longer(metadata.get(tool), path, entry)}
        return
    resource = scope.node.default_child or scope
    assert isinstance(resource, CfnResource), (
        f"{scope.node.path} is no single resource: this tool's findings are about one"
    )
    resource.add_metadata(tool, _longer(resource.get_metadata(tool), path, entry))


def _longer(value: Any, path: tuple[str, ...], entry: Any) -> Any:
    return (
        {path[0]: _longer((value or {}).get(path[0]), path[1:], entry)}
        if path
        else [*(other for other in value or [] if other != entry), entry]
    )


def managed_policy_findings(*names: str) -> list[str]:
    """Returns the findings about these AWS managed policies."""
    return [
        f"AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{name}]" for name in names
    ]


def wildcard_findings(scope: IConstruct, *resources: str) -> list[str]:
    """Returns the findings about these resources, which contain a star, of a policy in `scope`'s
    stack.
    """
    stack = Stack.of(scope)
    return [
        f"AwsSolutions-IAM5[Resource::{_spell(stack.resolve(resource))}]" for resource in resources
    ]


def _spell(value: Any) -> str:
    """Returns a resolved value in cdk-nag's spelling."""
    if isinstance(value, str):
        return re.sub(r"\$\{([^}]+)\}", r"<\1>", value)
    ((function, argument),) = value.items()
    if function == "Fn::Join":
        return str(argument[0]).join(_spell(part) for part in argument[1])
    if function == "Fn::GetAtt":
        return f"<{'.'.join(argument)}>"
    if function == "Fn::ImportValue":
        return _spell(argument)
    return f"<{argument}>"
