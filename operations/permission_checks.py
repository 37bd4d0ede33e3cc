"""What the caller itself may do, by IAM's own simulation: take cdk's roles, and what these commands and the tunnel ask for.

Promises: nothing is tried out; what cdk's roles may do in turn is the deployment policy's matter (docs/deployment-policy.md).
The simulation knows the caller's policies and boundary, and does not know those of an organization.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from operations.account_checks import Found, State
from stacks.cluster_spec import ClusterSpec


@dataclass(frozen=True)
class Need:
    """Actions on one resource, and what they are needed for."""

    what: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    vital: bool = False
    """Whether nothing works without it."""


def needs(spec: ClusterSpec, partition: str, account: str) -> Iterator[Need]:
    """What the operator's policy grants (docs/people.md), as a caller uses it."""

    def arn(service: str, resource: str, region: str = spec.region, owner: str = account) -> str:
        return f"arn:{partition}:{service}:{region}:{owner}:{resource}"

    roles = [f"role/cdk-hnb659fds-{one}-role-{account}-{spec.region}" for one in ("deploy", "file-publishing")]
    yield Need("deploy with cdk's roles", ("sts:AssumeRole",), tuple(arn("iam", role, region="") for role in roles), vital=True)
    yield Need(
        "watch the stacks",
        ("cloudformation:DescribeStacks", "cloudformation:DescribeStackEvents", "cloudformation:GetTemplate"),
        tuple(arn("cloudformation", f"stack/{spec.name}-{part}/*") for part in ("storage", "cluster")),
    )
    if spec.cluster.self_managed:
        secret = arn("secretsmanager", f"secret:{spec.name}/kubeconfig/operator-*")
        yield Need("`paddle-aws kubeconfig`", ("secretsmanager:GetSecretValue",), (secret,))
    else:
        yield Need("`paddle-aws kubeconfig`", ("eks:DescribeCluster",), (arn("eks", f"cluster/{spec.cluster_name}"),))
    if not spec.cluster.public_access_from:
        document = arn("ssm", "document/AWS-StartPortForwardingSessionToRemoteHost", owner="")
        yield Need("`paddle-aws kubeconfig --tunnel`", ("ssm:StartSession",), (document,))
        yield Need("`paddle-aws kubeconfig --tunnel`", ("ec2:DescribeInstances",), ("*",))
    if spec.key.existing_arn:
        yield Need("seal and open with the key", ("kms:Encrypt", "kms:Decrypt"), (spec.key.existing_arn,))


def permissions(iam: Any, identity: dict[str, str], spec: ClusterSpec) -> Found:
    """A finding for each need that is refused; one for all where none is."""
    arn = identity["Arn"]
    if arn.endswith(":root"):
        yield "warning", "you are the account's root: everything is allowed; work as a role instead (docs/people.md)"
        return
    if match := re.fullmatch(r"arn:(aws[a-z-]*):sts::(\d+):assumed-role/([^/]+)/.+", arn):
        arn = iam.get_role(RoleName=match[3])["Role"]["Arn"]
    refused = 0
    for need in needs(spec, arn.split(":")[1], identity["Account"]):
        denied = _denied(iam, arn, need)
        if denied:
            refused += 1
            state: State = "problem" if need.vital else "warning"
            advice = "attach the operator policy (docs/people.md)"
            yield state, f"{arn} may not {', '.join(denied)}, needed to {_to(need.what)}: {advice}"
    if not refused:
        yield "ok", f"{arn} may take cdk's roles and deploy, and reach the cluster afterwards"


def _to(what: str) -> str:
    return f"run {what}" if what.startswith("`") else what


def _denied(iam: Any, arn: str, need: Need) -> list[str]:
    """The actions that are refused on any of the resources."""
    answer = iam.simulate_principal_policy(PolicySourceArn=arn, ActionNames=list(need.actions), ResourceArns=list(need.resources))
    denied = []
    for found in answer["EvaluationResults"]:
        # Of several resources an answer may tell each one's decision below the action's.
        each = [(one["EvalResourceName"], one["EvalResourceDecision"]) for one in found.get("ResourceSpecificResults", ())]
        for resource, decision in each or [(found.get("EvalResourceName", need.resources[0]), found["EvalDecision"])]:
            if decision != "allowed":
                denied.append(f"{found['EvalActionName']} on {resource}")
    return list(dict.fromkeys(denied))
