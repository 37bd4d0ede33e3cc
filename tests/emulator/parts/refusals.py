"""What CloudFormation and its services refuse, in their own words, and MiniStack accepts.

Promises: an export that another stack imports is neither changed nor removed, and its stack is not
deleted; a logical id keeps its type; a key's policy names only users and roles that exist; a name
that is taken is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ministack.core.responses import get_account_id
from ministack.services import cloudformation, cloudwatch_logs, ecr, iam, kms, secretsmanager
from ministack.services.cloudformation import handlers, stacks
from resource_types import Handler, PhysicalResource, Properties, wrap_handlers

IMPORTS_NOTHING = ("DELETE_COMPLETE", "REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE")


def apply() -> None:
    """Puts the refusals in front of MiniStack's stacks, keys and resources with unique names."""
    actions = handlers._ACTION_HANDLERS
    actions["DeleteStack"] = partial(_delete, actions["DeleteStack"])
    actions["CreateChangeSet"] = partial(_create_change_set, actions["CreateChangeSet"])
    handlers._check_capabilities = partial(_check, handlers._check_capabilities)
    stacks._resolve_stack_outputs = partial(_resolve_outputs, stacks._resolve_stack_outputs)
    _check_before("AWS::KMS::Key", _principals_exist)
    _refuse_a_name_that_is_taken(
        "AWS::ECR::Repository", "RepositoryName", lambda name: name in ecr._repositories
    )
    _refuse_a_name_that_is_taken(
        "AWS::Logs::LogGroup", "LogGroupName", lambda name: name in cloudwatch_logs._log_groups
    )
    _refuse_a_name_that_is_taken(
        "AWS::KMS::Alias", "AliasName", lambda name: kms._alias_arn(name) in kms._aliases
    )
    _refuse_a_name_that_is_taken(
        "AWS::SecretsManager::Secret", "Name", lambda name: name in secretsmanager._secrets
    )


def _check_before(kind: str, check: Callable[[Properties], None]) -> None:
    """Lets `check` refuse the properties that a resource would be created with or changed to."""

    def check_first(handle: Handler, *arguments: Any) -> PhysicalResource:
        # create(logical id, properties, stack), or update(physical id, old, new, stack).
        check(arguments[1] if len(arguments) == 3 else arguments[2])
        return handle(*arguments)

    wrap_handlers(kind, create=check_first, update=check_first)


def _use(action: str, export: str) -> str:
    """Returns CloudFormation's sentence if a stack imports `export`, or an empty string."""
    live = [
        (name, stack)
        for name, stack in cloudformation._stacks.items()
        if stack["StackStatus"] not in IMPORTS_NOTHING
    ]
    users = ", ".join(
        sorted(
            name for name, stack in live if export in handlers._imported_export_names(stack, name)
        )
    )
    return (
        users
        and f"{action} canceled. Cannot {action.lower()} export {export} as it is in use by "
        f"{users}."
    )


def _resolve_outputs(resolve: Handler, *arguments: Any) -> Any:
    outputs, exports = resolve(*arguments)
    ours = {
        name: export
        for name, export in cloudformation._exports.items()
        if export["StackId"] == arguments[-1]
    }
    for name in ours:
        if exports.get(name) != ours[name] and (
            refused := _use("Update" if name in exports else "Delete", name)
        ):
            raise ValueError(refused)
    for name in ours.keys() - exports.keys():
        del cloudformation._exports[name]
    return outputs, exports


def _delete(delete: Handler, parameters: Mapping[str, Any]) -> Any:
    """Leaves a stack whose exports are in use as it is, though the call succeeds; an event says
    why.
    """
    stack = handlers._resolve_stack(handlers._p(parameters, "StackName")) or {"Outputs": []}
    refused = [
        _use("Delete", output["ExportName"])
        for output in stack["Outputs"]
        if "ExportName" in output
    ]
    if (
        not any(refused)
        or stack["StackStatus"] in IMPORTS_NOTHING
        or stack.get("EnableTerminationProtection")
    ):
        return delete(parameters)
    stack["StackStatusReason"] = next(filter(None, refused))
    itself = (
        stack["StackId"],
        stack["StackName"],
        stack["StackName"],
        "AWS::CloudFormation::Stack",
    )
    stacks._add_event(*itself, stack["StackStatus"], stack["StackStatusReason"], stack["StackId"])
    return handlers._xml(200, "DeleteStackResponse", "")


def _other_types(parameters: Mapping[str, Any], template: Mapping[str, Any]) -> str:
    """Returns CloudFormation's sentence about the logical ids that `template` gives another type,
    or an empty string.
    """
    stack = handlers._resolve_stack(handlers._p(parameters, "StackName")) or {}
    types = {
        name: resource["ResourceType"] for name, resource in stack.get("_resources", {}).items()
    }
    resources = template.get("Resources") or {}
    changed = ", ".join(
        name for name in types if name in resources and resources[name].get("Type") != types[name]
    )
    rule = (
        "Update of resource type is not permitted. The new template modifies resource type of "
        "the following resources"
    )
    return changed and f"{rule}: [{changed}]"


def _check(
    check: Handler,
    sent: Any,
    template: Mapping[str, Any],
    parameters: Mapping[str, Any],
    **options: Any,
) -> Any:
    """Checks each template before anything is done. A change set that is refused is created all the
    same.
    """
    refused = "" if "ChangeSetName" in parameters else _other_types(parameters, template)
    return (
        handlers._error("ValidationError", refused)
        if refused
        else check(sent, template, parameters, **options)
    )


def _create_change_set(create: Handler, parameters: Mapping[str, Any]) -> Any:
    """The change set fails if types change, but not if only outputs do, which MiniStack does not
    count as a change.
    """
    answer = create(parameters)
    for change_set in [
        change_set
        for id, change_set in cloudformation._change_sets.items()
        if id.encode() in answer[2]
    ]:
        before, after = (
            handlers._resolve_stack(change_set["StackId"])["_template"],
            change_set["_template"],
        )
        if refused := _other_types(parameters, after):
            change_set |= {
                "Status": "FAILED",
                "ExecutionStatus": "UNAVAILABLE",
                "StatusReason": refused,
                "Changes": [],
            }
        elif "didn't contain changes" in change_set["StatusReason"] and before.get(
            "Outputs"
        ) != after.get("Outputs"):
            change_set |= {
                "Status": "CREATE_COMPLETE",
                "ExecutionStatus": "AVAILABLE",
                "StatusReason": "",
            }
    return answer


def _principals_exist(properties: Mapping[str, Any]) -> None:
    """Checks only this account's users and roles: those of other accounts are unknown here."""
    policy = properties.get("KeyPolicy") or {}
    statements = (json.loads(policy) if isinstance(policy, str) else policy).get("Statement") or []
    principals = [
        statement.get("Principal")
        for statement in (statements if isinstance(statements, list) else [statements])
    ]
    named = re.findall(
        rf'"(arn:aws:iam::{get_account_id()}:(?:role|user)/[^"]+)"', json.dumps(principals)
    )
    arns = {record["Arn"] for store in (iam._users, iam._roles) for record in store.values()}
    if not arns.issuperset(named):
        raise ValueError(
            "Policy contains a statement with one or more invalid principals. (Service: Kms, "
            "Status Code: 400)"
        )


def _refuse_a_name_that_is_taken(kind: str, named: str, taken: Callable[[str], bool]) -> None:
    """Refuses a taken name: MiniStack's create takes over what somebody else has under that
    name.
    """

    def created(
        create: Handler, logical_id: str, props: Properties, stack: str
    ) -> PhysicalResource:
        if taken(props.get(named, "")):
            raise ValueError(
                f"Resource of type '{kind}' with identifier '{props[named]}' already exists. "
                "(AlreadyExists)"
            )
        return create(logical_id, props, stack)

    wrap_handlers(kind, create=created)
