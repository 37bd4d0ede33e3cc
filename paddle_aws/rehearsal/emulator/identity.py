"""Who may act as whom, where MiniStack does not ask: root and services.

MiniStack itself verifies each request's signature and asks the policies of its principal: identity,
boundary, session and resource policies, and a role's trust. Promises of this module:

* Root may assume no role (STS: "Roles may not be assumed by root accounts").
* CloudFormation gets a role only from who may pass it, and only a role that trusts CloudFormation.
* `session` gives a role's credentials to a service that the role trusts: pods.eks.amazonaws.com for
  a pod, ec2.amazonaws.com for a node.

Limits: what CloudFormation's role may do to each resource is asked of the simulator
(tests/aws/test_deployment_policy.py): MiniStack's handlers make resources themselves.
"""

from __future__ import annotations

import functools
import json
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

import stores
from ministack.core import iam_evaluator, lambda_runtime
from ministack.core.responses import get_account_id, get_region
from ministack.core.router import extract_access_key_id
from ministack.services import cloudformation, iam, lambda_svc, sts

PASSES_ROLE = ("CreateStack", "UpdateStack", "DeleteStack", "CreateChangeSet")
LASTS = 3600
"""Seconds that a service's credentials are valid."""


def trusts(role: str, service: str, *actions: str) -> bool:
    """Returns whether a role (its ARN) exists and lets a service do each of the actions."""
    record = iam._roles.get(role.rpartition("/")[2])
    if record is None or record["Arn"] != role:
        return False
    document = record["AssumeRolePolicyDocument"]
    document = json.loads(document) if isinstance(document, str) else document
    statements, account = document["Statement"], get_account_id()
    named = [
        {**statement, "Principal": "*"}
        for statement in (statements if isinstance(statements, list) else [statements])
        if iam_evaluator._service_principal_matches(statement.get("Principal"), service)
    ]
    context = functools.partial(
        iam_evaluator.EvalContext,
        principal_arn=service,
        principal_type="Service",
        principal_account=account,
        resource_arn=role,
        region=get_region(),
        service_context={"aws:sourceaccount": account},
    )
    evaluate = functools.partial(iam_evaluator.evaluate_trust_policy, {"Statement": named}, service)
    return all(evaluate(context(action=action)) for action in actions)


def session(service: str, role: str) -> dict[str, str] | None:
    """Returns new credentials of a role for a service; None if the role does not trust it."""
    also = ["sts:TagSession"] if service == "pods.eks.amazonaws.com" else []
    if not trusts(role, service, "sts:AssumeRole", *also):
        return None
    who = service.partition(".")[0]
    record = {
        "Arn": f"arn:aws:sts::{get_account_id()}:assumed-role/{role.rpartition('/')[2]}/{who}",
        "UserId": f"AROA{secrets.token_hex(8).upper()}:{who}",
        "Expiration": time.time() + LASTS,
        "AccountId": get_account_id(),
        "PrincipalType": "AssumedRole",
    }
    return _issue(record)


def _issue(record: dict[str, Any]) -> dict[str, str]:
    """Registers a session under a new key that nobody can guess; returns its variables."""
    key = f"ASIA{secrets.token_hex(8).upper()}"
    secret, token = secrets.token_urlsafe(30), secrets.token_urlsafe(60)
    sts.register_session(key, {**record, "SecretAccessKey": secret, "SessionToken": token})
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    return dict(zip(names, (key, secret, token), strict=True))


def function_credentials(derive: Any, config: Any) -> dict[str, str]:
    """Returns a function's credentials. MiniStack's own follow from names that anybody knows."""
    derived = derive(config)["AWS_ACCESS_KEY_ID"]
    return _issue(sts._sessions.pop(derived))


ANSWERS: dict[str, Callable[..., Any]] = {"inventory": stores.resources, "session": session}
"""What a rehearsal asks of the emulator alone, by the path below `/_rehearsal/`."""


def _why_root_takes_no_role(asked: Mapping[str, str], key: str | None) -> str:
    assumes = asked.get("Action") == "AssumeRole" and iam_evaluator.is_root_access_key(key)
    return "Roles may not be assumed by root accounts." if assumes else ""


def _why_role_is_not_passed(asked: Mapping[str, str], key: str | None) -> str:
    role, service = asked.get("RoleARN", ""), "cloudformation.amazonaws.com"
    if not role or asked.get("Action") not in PASSES_ROLE:
        return ""
    passed = {"iam:passedtoservice": service}
    refused = iam_evaluator.enforce(
        key, "iam:PassRole", "iam", get_region(), role, service_context=passed
    )
    if not refused and trusts(role, service, "sts:AssumeRole"):
        return ""
    who = getattr(refused, "principal_arn", "") or service
    return f"{who} is not authorized to perform: iam:PassRole on resource: {role}"


def _refuse_first(service: Any, why: Callable[[Mapping[str, str], str | None], str]) -> None:
    """Lets `why` refuse requests to a service, by their parameters and key, with a reason."""
    handle = service.handle_request

    async def handle_unless_refused(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any]
    ) -> Any:
        asked = parse_qs(body.decode(errors="replace")) | query
        first = {name: values[0] for name, values in asked.items()}
        if text := why(first, extract_access_key_id(headers, query)):
            return sts._error(403, "AccessDenied", text, ns="sts")
        return await handle(method, path, headers, body, query)

    service.handle_request = handle_unless_refused


def apply() -> None:
    """Puts the refusals in front of STS and CloudFormation, and gives functions random keys."""
    credentials = functools.partial(function_credentials, lambda_runtime.execution_credentials)
    lambda_runtime.execution_credentials = lambda_svc.execution_credentials = credentials
    _refuse_first(sts, _why_root_takes_no_role)
    _refuse_first(cloudformation, _why_role_is_not_passed)
    # SimulatePrincipalPolicy takes the path of an ARN for a part of the name.
    for kind in ("role", "user"):
        gather = getattr(iam_evaluator, f"_gather_{kind}_policies")

        def gather_by_name(name: str, account: str, gather: Any = gather) -> Any:
            return gather(name.rpartition("/")[2], account)

        setattr(iam_evaluator, f"_gather_{kind}_policies", gather_by_name)
