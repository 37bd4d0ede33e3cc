"""Stack policies, which MiniStack keeps and does not heed, and CloudFormation's events, which it
does not send.

Promises: EventBridge hears of each state of a stack; an update that a stack's policy denies is
refused before anything is done. (CloudFormation refuses it when it gets to the resource, and rolls
back.) Of a policy, statements about `Update:Replace` and `Update:Delete` of resource types count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ministack.services import cloudformation, eventbridge
from ministack.services.cloudformation import changesets, handlers, stacks
from resource_types import Handler

STACK = "AWS::CloudFormation::Stack"


def apply() -> None:
    """Puts the events behind MiniStack's stacks, and the policies in front of them."""
    stacks._add_event = partial(_add_event, stacks._add_event)
    actions = handlers._ACTION_HANDLERS
    actions["ExecuteChangeSet"] = partial(_execute, actions["ExecuteChangeSet"])


def _add_event(
    add: Handler,
    stack_id: str,
    name: str,
    logical_id: str,
    kind: str,
    status: str,
    *more: Any,
    **rest: Any,
) -> None:
    add(stack_id, name, logical_id, kind, status, *more, **rest)
    if kind == STACK and logical_id == name:
        detail = {"stack-id": stack_id, "status-details": {"status": status, "status-reason": ""}}
        entry = {
            "Source": "aws.cloudformation",
            "DetailType": "CloudFormation Stack Status Change",
            "Detail": json.dumps(detail),
            "Resources": [stack_id],
        }
        eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)


def _execute(execute: Handler, parameters: Mapping[str, Any]) -> Any:
    names = (handlers._p(parameters, key) for key in ("ChangeSetName", "StackName"))
    _, change_set = changesets._find_change_set(*names)
    stack = cloudformation._stacks.get((change_set or {}).get("StackName"), {})
    refused = list(_denied(change_set or {}, json.loads(stack.get("_stack_policy") or "{}")))
    if refused:
        return handlers._error("ValidationError", "; ".join(refused))
    return execute(parameters)


def _denied(change_set: Mapping[str, Any], policy: Mapping[str, Any]) -> Iterator[str]:
    for change in change_set.get("Changes", ()):
        resource = change["ResourceChange"]
        replaced = resource.get("Replacement") == "True"
        action = "Update:Delete" if resource["Action"] == "Remove" else "Update:Replace"
        if action == "Update:Replace" and not replaced:
            continue
        for number, statement in enumerate(policy.get("Statement", ()), 1):
            types = statement.get("Condition", {}).get("StringEquals", {}).get("ResourceType", [])
            if (
                statement["Effect"] == "Deny"
                and action in statement["Action"]
                and resource["ResourceType"] in types
            ):
                yield (
                    f"Action denied by stack policy: Statement [#{number}] does not allow "
                    f"[{action}] for resource [LogicalResourceId/{resource['LogicalResourceId']}]"
                )
