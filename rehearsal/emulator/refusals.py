"""What CloudFormation refuses of a whole stack, in its own words; MiniStack takes it.

Promises: an export that another stack imports is neither changed nor removed, and its stack is not deleted; a logical id keeps
its type; a key's policy names only users and roles that exist.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ministack.core.responses import get_account_id
from ministack.services import cloudformation, iam
from ministack.services.cloudformation import changesets, handlers, stacks
from repairs import _wrap

Parameters = Mapping[str, Any]
Answer = tuple[int, dict[str, str], Any]

IMPORTS_NOTHING = ("DELETE_COMPLETE", "REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE")


def apply() -> None:
    """Put the refusals in front of MiniStack's stacks and keys."""
    actions = handlers._ACTION_HANDLERS
    actions["DeleteStack"] = _without_exports_in_use(actions["DeleteStack"])
    actions["UpdateStack"] = _of_the_same_types(actions["UpdateStack"])
    actions["CreateChangeSet"] = _failed_where_types_change(actions["CreateChangeSet"])
    stacks._resolve_stack_outputs = _keeping_exports(stacks._resolve_stack_outputs)
    _wrap("AWS::KMS::Key", before=_principals_exist)


def _users(export: str) -> str:
    """The stacks that import it, by name."""
    found = cloudformation._stacks.items()
    live = [(name, stack) for name, stack in found if stack["StackStatus"] not in IMPORTS_NOTHING]
    return ", ".join(sorted(name for name, stack in live if export in handlers._imported_export_names(stack, name)))


def _keeping_exports(resolve: Callable[..., Any]) -> Callable[..., Any]:
    def resolved(*arguments: Any) -> Any:
        outputs, exports = resolve(*arguments)
        stack_id = arguments[-1]
        for name, was in [item for item in cloudformation._exports.items() if item[1]["StackId"] == stack_id]:
            now = exports.get(name)
            if now != was and (users := _users(name)):
                done, verb = ("Update", "update") if now else ("Delete", "delete")
                raise ValueError(f"{done} canceled. Cannot {verb} export {name} as it is in use by {users}.")
            if now is None:
                del cloudformation._exports[name]
        return outputs, exports

    return resolved


def _without_exports_in_use(delete: Callable[[Parameters], Answer]) -> Callable[[Parameters], Answer]:
    """The call succeeds, the stack stays as it is, and an event says why."""

    def deleted(parameters: Parameters) -> Answer:
        stack = handlers._resolve_stack(handlers._p(parameters, "StackName"))
        if stack and stack["StackStatus"] != "DELETE_COMPLETE" and not stack.get("EnableTerminationProtection"):
            for output in stack["Outputs"]:
                name = output.get("ExportName")
                if name and (users := _users(name)):
                    reason = f"Delete canceled. Cannot delete export {name} as it is in use by {users}."
                    stack["StackStatusReason"] = reason
                    itself = (stack["StackId"], stack["StackName"], stack["StackName"], "AWS::CloudFormation::Stack")
                    stacks._add_event(*itself, stack["StackStatus"], reason, stack["StackId"])
                    answered: Answer = handlers._xml(200, "DeleteStackResponse", "")
                    return answered
        return delete(parameters)

    return deleted


def _changed_types(stack: Mapping[str, Any], template: Mapping[str, Any]) -> str:
    """CloudFormation's sentence on the logical ids that would be of another type; empty: there are none."""
    wanted = template.get("Resources") or {}
    old = {name: resource["ResourceType"] for name, resource in stack["_resources"].items() if name in wanted}
    changed = ", ".join(name for name, kind in old.items() if wanted[name].get("Type") != kind)
    rule = "Update of resource type is not permitted. The new template modifies resource type of the following resources"
    return f"{rule}: [{changed}]" if changed else ""


def _of_the_same_types(update: Callable[[Parameters], Answer]) -> Callable[[Parameters], Answer]:
    def updated(parameters: Parameters) -> Answer:
        stack = handlers._resolve_stack(handlers._p(parameters, "StackName"))
        body, _ = handlers._resolve_template(parameters)
        try:
            template = handlers._parse_template(body or "{}")
        except Exception:  # What is no template is refused by MiniStack itself.
            template = {}
        if stack and (refused := _changed_types(stack, template)):
            answered: Answer = handlers._error("ValidationError", refused)
            return answered
        return update(parameters)

    return updated


def _failed_where_types_change(create: Callable[[Parameters], Answer]) -> Callable[[Parameters], Answer]:
    def created(parameters: Parameters) -> Answer:
        answer = create(parameters)
        stack = handlers._resolve_stack(handlers._p(parameters, "StackName"))
        name = handlers._p(parameters, "ChangeSetName")
        _, made = changesets._find_change_set(name, stack["StackName"] if stack else "")
        if answer[0] == 200 and (refused := _changed_types(stack, made["_template"])):
            made |= {"Status": "FAILED", "ExecutionStatus": "UNAVAILABLE", "StatusReason": refused, "Changes": []}
        return answer

    return created


def _principals_exist(properties: Mapping[str, Any]) -> None:
    """Of this account's users and roles: others' are not known here."""
    here = f":iam::{get_account_id()}:"
    known = {record["Arn"] for store in (iam._users, iam._roles) for record in store.values()}
    for arn in _principals(properties.get("KeyPolicy") or {}):
        if here in arn and arn.rpartition(here)[2].startswith(("role/", "user/")) and arn not in known:
            raise ValueError(
                'Resource handler returned message: "Policy contains a statement with one or more invalid principals. '
                '(Service: Kms, Status Code: 400)" (HandlerErrorCode: InvalidRequest)'
            )


def _principals(policy: Mapping[str, Any] | str) -> Iterator[str]:
    statements = (json.loads(policy) if isinstance(policy, str) else policy).get("Statement") or []
    for statement in statements if isinstance(statements, list) else [statements]:
        principal = statement.get("Principal")
        named = principal.get("AWS", []) if isinstance(principal, dict) else []
        yield from named if isinstance(named, list) else [named]
