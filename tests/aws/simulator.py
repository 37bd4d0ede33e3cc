"""Simulates IAM's decisions with the npm package @cloud-copilot/iam-simulate (AGPL: runs as its own
process, in tests only).

The package knows conditions, permissions boundaries, resource policies and every action's resources
and condition keys. It returns an error if a request names an action, a resource or a key that AWS
does not have.
"""

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .built import ACCOUNT

ALLOWED, REFUSED, DENIED = "Allowed", "ImplicitlyDenied", "ExplicitlyDenied"

Statements = list[dict[str, Any]]


@dataclass(frozen=True)
class Request:
    """One call: its principal, action, resource and context (condition keys)."""

    action: str
    resource: str
    context: Mapping[str, str | list[str]] = field(default_factory=dict)
    principal: str = f"arn:aws:iam::{ACCOUNT}:role/caller"


def decisions(
    statements: Statements,
    requests: Iterable[Request],
    boundary: Statements | None = None,
    key_policy: Statements | None = None,
) -> list[str]:
    """Returns `Allowed`, `ImplicitlyDenied` or `ExplicitlyDenied` for each request. Raises
    AssertionError for one unknown to AWS.

    `key_policy`: the statements of a key's own policy, which apply to requests about that key.
    """

    def document(these: Statements) -> dict[str, Any]:
        return {"Version": "2012-10-17", "Statement": these}

    always = {"identityPolicies": [{"name": "identity", "policy": document(statements)}]}
    always |= {"serviceControlPolicies": [], "resourceControlPolicies": []}
    if boundary is not None:
        always["permissionBoundaryPolicies"] = [{"name": "boundary", "policy": document(boundary)}]
    simulations: list[dict[str, Any]] = []
    for request in requests:
        asked = {
            "principal": request.principal,
            "action": request.action,
            "resource": {"accountId": ACCOUNT, "resource": request.resource},
            "contextVariables": dict(request.context),
        }
        simulations.append({"request": asked, **always})
        if key_policy is not None and request.action.startswith("kms:") and request.resource != "*":
            simulations[-1]["resourcePolicy"] = document(key_policy)
    program = Path(__file__).with_name("simulate.mjs")
    run = subprocess.run(
        ["node", program],
        input=json.dumps(simulations),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    answers: list[str] = json.loads(run.stdout)
    for simulation, answer in zip(simulations, answers, strict=True):
        assert "error" not in answer, f"{simulation['request']}: {answer}"
    return answers
