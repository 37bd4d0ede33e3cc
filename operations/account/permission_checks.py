"""What the caller itself may do, by IAM's own simulation: take cdk's roles, and what these commands and the tunnel ask for.

Promises: nothing is tried out; what cdk's roles may do in turn is the deployment policy's matter (docs/deployment-policy.md).
The simulation knows the caller's policies and boundary, and does not know those of an organization.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from operations.account.account_checks import Found, State
from stacks.cluster_spec import ClusterSpec


def needs(spec: ClusterSpec, partition: str, account: str) -> Iterator[dict[str, Any]]:
    """Those of permission_checks.yaml that hold for a cluster: actions on resources, and what they are needed for."""
    holds = {"always": True, spec.cluster.kind: True}
    holds |= {"tunnel": spec.cluster.has_tunnel, "key": bool(spec.key.existing_arn)}
    known = {"partition": partition, "account": account, "region": spec.region, "name": spec.name, "qualifier": spec.qualifier}
    known |= {"cluster": spec.cluster_name, "key": spec.key.existing_arn or ""}
    for need in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")):
        if holds.get(need.get("when", "always")):
            yield need | {"resources": [one.format(**known) for one in need["resources"]]}


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
            state: State = "problem" if need.get("vital") else "warning"
            advice = "take the operator's role, or join its group (docs/people.md)"
            yield state, f"{arn} may not {', '.join(denied)}, needed to {need['what']}: {advice}"
    if not refused:
        yield "ok", f"{arn} may take cdk's roles and deploy, and reach the cluster afterwards"


def _denied(iam: Any, arn: str, need: dict[str, Any]) -> list[str]:
    """The actions that are refused on any of the resources."""
    answer = iam.simulate_principal_policy(PolicySourceArn=arn, ActionNames=need["actions"], ResourceArns=need["resources"])
    denied = []
    for found in answer["EvaluationResults"]:
        # Of several resources an answer may tell each one's decision below the action's.
        each = [(one["EvalResourceName"], one["EvalResourceDecision"]) for one in found.get("ResourceSpecificResults", ())]
        for resource, decision in each or [(found.get("EvalResourceName", need["resources"][0]), found["EvalDecision"])]:
            if decision != "allowed":
                denied.append(f"{found['EvalActionName']} on {resource}")
    return list(dict.fromkeys(denied))
