"""People: which commands each team may run according to the synthesized policies, and what no team
may do.
"""

import itertools
import json
import os
import re
from typing import Any

import pytest
from typer.main import get_command

from paddle_aws.operations.main import app

from .built import NAMES, PROJECT, Built, listed
from .conftest import built
from .rights import COMMANDS, TABLE, TEAMS, cluster_rights, row
from .simulator import ALLOWED, DENIED, Request, Statements, decisions

pytestmark = pytest.mark.slow


def _policies(cluster: Built) -> dict[str, Statements]:
    by_team: dict[str, Statements] = {"operator": [], "trainer": [], "reader": []}
    for stack, team in itertools.product(("access", "cluster"), by_team):
        for name, policy in cluster.whole("AWS::IAM::ManagedPolicy", stack).items():
            if f"{team.title()}Policy" in name:
                properties = policy["Properties"]
                assert len(properties["Groups"]) == len(properties["Roles"]) == 1, (
                    "who takes the role, or is of the group"
                )
                document = cluster.resolved(stack, properties["PolicyDocument"])
                assert len(json.dumps(document, separators=(",", ":"))) < 6144
                by_team[team] += document["Statement"]
    return by_team


@pytest.fixture(params=["shipped", "own_private"])
def cluster(request: pytest.FixtureRequest, variant: Any) -> Any:
    return variant(request.param)


def _bucket(cluster: Built) -> str:
    [logical_id] = [id for id in cluster.whole("AWS::S3::Bucket") if "Logs" not in id]
    return str(cluster.resolved("storage", {"Ref": logical_id})).rpartition(":")[2]


def _requests(cluster: Built, team: str, calls: list[dict[str, Any]]) -> list[Request]:
    kind, name = cluster.spec.cluster.kind, cluster.spec.name
    values = {
        "name": name,
        "team": team,
        "bucket": _bucket(cluster),
        "qualifier": name,
        "key": NAMES["AWS::KMS::Key"],
    }
    requests = []
    for action, resource, *context in (
        call["ask"] for call in calls if call.get("only", kind) == kind
    ):
        keys = {key: value.format(**values) for given in context for key, value in given.items()}
        on = TABLE["resources"].get(resource, resource).format(**values)
        requests.append(Request(action, on, {"aws:userid": "AROAEXAMPLE:me", **keys}))
    return requests


@pytest.mark.parametrize("team", TEAMS.values())
def test_each_team_may_run_its_commands_and_no_other(cluster: Built, team: str) -> None:
    kind, statements = cluster.spec.cluster.kind, _policies(cluster)[team]
    asked = {
        command: _requests(
            cluster,
            team,
            [call for part in entry["calls"] for call in TABLE["calls"].get(part, ())],
        )
        for command, entry in COMMANDS.items()
        if entry.get("only", kind) == kind
    }
    [key] = cluster.resources("AWS::KMS::Key")
    of_key = cluster.resolved("access", key["KeyPolicy"]["Statement"])
    answers = iter(
        decisions(
            statements,
            [request for requests in asked.values() for request in requests],
            key_policy=of_key,
        )
    )
    for command, requests in asked.items():
        refused = [
            request for request, answer in zip(requests, answers, strict=False) if answer != ALLOWED
        ]
        if team[0] in COMMANDS[command]["teams"]:
            assert not refused, command
        elif requests:
            assert refused, command


@pytest.mark.parametrize("team", ["trainer", "reader"])
def test_the_cluster_agrees(team: str) -> None:
    """Operators are not tested: they administer the cluster."""
    rights = cluster_rights(team)
    for command, entry in COMMANDS.items():
        if "kubernetes" in entry:
            verb, resource = entry["kubernetes"].split()
            assert ((resource, verb) in rights) == (team[0] in entry["teams"]), command


PAGE = PROJECT / "docs" / "people.md"
GENERATED = re.compile(
    r"(?<=<!-- generated: tests/aws/test_people.py -->\n).*?(?=<!-- end -->)", re.S
)


def test_docs_people_has_this_table() -> None:
    """UPDATE_GOLDEN=1 writes it."""
    rows = ["| command | operator | trainer | reader |", "|---|---|---|---|"]
    for teams in sorted({entry["teams"] for entry in COMMANDS.values()}, key=len):
        names = [f"`{name}`" for name, entry in COMMANDS.items() if entry["teams"] == teams]
        marks = ["✓" if team in teams else "" for team in TEAMS]
        rows.append("| " + " | ".join([", ".join(names), *marks]) + " |")
    table = "\n".join(rows) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(GENERATED.sub(lambda _: table, PAGE.read_text()))
    assert GENERATED.findall(PAGE.read_text()) == [table]


def test_every_command_of_the_pages_is_in_the_table() -> None:
    text = (PROJECT / "README.md").read_text() + (PROJECT / "docs" / "commands.md").read_text()
    code = "\n".join(re.findall(r"^```(?:sh|bash)\n(.*?)^```", text, re.M | re.S))
    lines = [
        part.strip()
        for line in code.splitlines()
        for part in line.lstrip("$ ").split("#")[0].split("&&")
    ]
    cli = get_command(app)
    names = [
        f"paddle-aws {name}"
        for name, click_command in cli.commands.items()
        if not click_command.hidden and name != "lock"
    ]  # type: ignore[attr-defined]
    for command in [*filter(None, lines), *names]:
        if command.split()[0] in ("paddle-aws", "cdk", "make"):
            assert row(command.split()).split()[:2] == command.split()[:2] or command.startswith(
                "make"
            ), command


@pytest.mark.parametrize("team", TEAMS.values())
def test_what_no_command_needs_is_refused(cluster: Built, team: str) -> None:
    asked = _requests(
        cluster, team, [call for call in TABLE["refused"] if team[0] in call["teams"]]
    )
    answers = decisions(_policies(cluster)[team], asked)
    assert [
        request for request, answer in zip(asked, answers, strict=True) if answer == ALLOWED
    ] == []


def test_a_named_operator_alone_lifts_the_protection() -> None:
    ada, bob = (f"arn:aws:iam::000000000000:user/{name}" for name in ("ada", "bob"))
    most = [f"arn:aws:iam::000000000000:user/{'x' * 63}{number}" for number in range(9)]
    statements = _policies(built(protect={"lifted_by": [ada, *most]}))["operator"]
    stack = "arn:aws:cloudformation:us-west-2:000000000000:stack/paddle-storage/1"
    asked = [
        Request("cloudformation:SetStackPolicy", stack, {"aws:PrincipalArn": who}, who)
        for who in (ada, bob)
    ]
    assert decisions(statements, asked) == [ALLOWED, DENIED]
    # Who else's stacks they are, others say.
    (denial,) = [statement for statement in statements if statement["Sid"] == "NamedOperators"]
    assert all("stack/paddle-" in resource for resource in listed(denial["Resource"]))


def test_a_reader_changes_nothing(cluster: Built) -> None:
    actions = {
        action
        for statement in _policies(cluster)["reader"]
        for action in listed(statement["Action"])
    }
    sessions = {
        "ssm:StartSession",
        "ssm:ResumeSession",
        "ssm:TerminateSession",
        "ssmmessages:OpenDataChannel",
    }
    verbs = ("Describe", "List", "Get", "Filter", "Decrypt", "StartQuery", "StopQuery")
    assert all(action.partition(":")[2].startswith(verbs) for action in actions - sessions)


def test_stars_stand_for_what_has_no_resource_of_its_own(cluster: Built) -> None:
    stars = {
        statement["Sid"]
        for statements in _policies(cluster).values()
        for statement in statements
        if statement["Resource"] == "*"
    }
    assert stars - {"LogAnswers"} == {"Look", "BudgetTag", "ImageLogin", "FindTunnel"}
