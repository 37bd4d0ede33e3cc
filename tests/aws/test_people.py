"""People: what each team may do, and that every statement has its reason in docs/people.md."""

import json
from pathlib import Path
from typing import Any


def _policies(cluster: Any) -> dict[str, list[dict[str, Any]]]:
    named = {}
    for stack in ("access", "cluster"):
        for name, policy in cluster.whole("AWS::IAM::ManagedPolicy", stack).items():
            for team in ("OperatorPolicy", "TrainerPolicy", "ReaderPolicy"):
                if team in name:
                    named[team] = policy["Properties"]["PolicyDocument"]["Statement"]
    return named


def test_the_operator_has_the_two_statements_of_2016_on_this_cluster_alone(shipped: Any) -> None:
    statements = {s["Sid"]: s for s in _policies(shipped)["OperatorPolicy"]}
    assert statements["Key"]["Action"] == ["kms:Decrypt", "kms:Encrypt"]
    assert "Fn::GetAtt" in statements["Key"]["Resource"]
    assert set(statements["Stacks"]["Action"]) == {
        "cloudformation:CreateStack",
        "cloudformation:UpdateStack",
        "cloudformation:DeleteStack",
        "cloudformation:DescribeStacks",
        "cloudformation:DescribeStackResource",
        "cloudformation:GetTemplate",
        "cloudformation:DescribeStackEvents",
    }
    # Not paddle-*: that is the beginning of paddle-two-* too.
    parts = ("access", "network", "storage", "cluster", "nodes", "watch")
    found = json.dumps(statements["Stacks"]["Resource"])
    assert found.count(":stack/") == len(parts) and all(f'":stack/paddle-{part}/*"' in found for part in parts)


def test_no_session_begins_without_a_document_that_is_granted(shipped: Any) -> None:
    """Session Manager gives a shell to whoever names no document, unless every statement asks for one."""
    begins = [s for s in _policies(shipped)["OperatorPolicy"] if s["Action"] == "ssm:StartSession"]
    assert [s["Sid"] for s in begins] == ["Tunnel", "TunnelThroughNodes"]
    for statement in begins:
        assert statement["Condition"]["BoolIfExists"] == {"ssm:SessionDocumentAccessCheck": "true"}


def test_who_trains_writes_below_sources_and_nowhere_else(shipped: Any) -> None:
    statements = {s["Sid"]: s for s in _policies(shipped)["TrainerPolicy"]}
    assert '/sources/*"' in json.dumps(statements["UploadData"]["Resource"])
    writes = [sid for sid, s in statements.items() if "Put" in str(s["Action"]) or "Delete" in str(s["Action"])]
    assert writes == ["UploadData"]


def test_who_looks_changes_nothing(shipped: Any) -> None:
    for statement in _policies(shipped)["ReaderPolicy"]:
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        for action in actions:
            verb = action.partition(":")[2]
            assert verb.startswith(("Describe", "List", "Get", "Filter", "Decrypt", "StartQuery", "StopQuery")), action


def test_stars_stand_for_what_has_no_resource_of_its_own(shipped: Any) -> None:
    stars = {s["Sid"] for statements in _policies(shipped).values() for s in statements if s["Resource"] == "*"}
    assert stars == {"FindNodes", "Locks", "LogAnswers"}


def test_each_statement_is_explained(shipped: Any, project: Path) -> None:
    """docs/people.md has one row for each statement."""
    rows = {
        tuple(cell.strip(" `") for cell in line.split("|")[1:3])
        for line in (project / "docs" / "people.md").read_text().splitlines()
        if line.startswith("| ")
    }
    for policy, statements in _policies(shipped).items():
        for statement in statements:
            assert (policy.removesuffix("Policy").lower(), statement["Sid"]) in rows


def test_groups_and_roles_hold_the_same_policies(shipped: Any) -> None:
    for name, policy in {
        **shipped.whole("AWS::IAM::ManagedPolicy", "access"),
        **shipped.whole("AWS::IAM::ManagedPolicy", "cluster"),
    }.items():
        if any(team in name for team in ("OperatorPolicy", "TrainerPolicy", "ReaderPolicy")):
            assert len(policy["Properties"]["Groups"]) == len(policy["Properties"]["Roles"]) == 1
