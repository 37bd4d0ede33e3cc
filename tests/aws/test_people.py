"""People: which command each team may run, asked of the synthesized policies; and what no team may do."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from operations.commands.cost import TUNNEL_DISK
from operations.main import app
from stacks.cluster_spec import TUNNEL_TYPE

from .conftest import ACCOUNT, NAMES, Built, listed
from .rights import COMMANDS, TABLE, TEAMS, cluster_rights, row
from .simulator import ALLOWED, Request, Statements, decisions

pytestmark = pytest.mark.slow

LOCK = {name: f"tests/aws/variants/distribution{file}" for name, file in (("lock", "/lock.json"), ("files", ""))}
CHECKED = {"ssm:SessionDocumentAccessCheck": "true"}
ME = {"aws:userid": "AROAEXAMPLE:me"}


def _policies(cluster: Built) -> dict[str, Statements]:
    found: dict[str, Statements] = {"operator": [], "trainer": [], "reader": []}
    for stack in ("access", "cluster"):
        for name, policy in cluster.whole("AWS::IAM::ManagedPolicy", stack).items():
            for team in found:
                if f"{team.title()}Policy" in name:
                    found[team] += cluster.resolved(stack, policy["Properties"]["PolicyDocument"]["Statement"])
    return found


@pytest.fixture(scope="module")
def private(built: Callable[..., Built]) -> Built:
    """A self-managed cluster with a private endpoint."""
    return built(name="own", cluster={"kind": "self-managed", "distribution": LOCK, "ssh": {"allowed_from": ["10.0.0.0/16"]}})


@pytest.fixture(params=["eks", "self-managed"])
def cluster(request: pytest.FixtureRequest, shipped: Built) -> Built:
    made: Built = shipped if request.param == "eks" else request.getfixturevalue("private")
    return made


def _bucket(cluster: Built) -> str:
    [found] = [id for id in cluster.whole("AWS::S3::Bucket") if "Logs" not in id]
    return str(cluster.resolved("storage", {"Ref": found}))


def _requests(cluster: Built, team: str, command: str) -> list[Request]:
    kind, name = cluster.spec.cluster.kind, cluster.spec.name
    known = {"name": name, "team": team, "bucket": _bucket(cluster).rpartition(":")[2], "qualifier": name}
    known["key"] = NAMES["AWS::KMS::Key"]
    asked = [
        call["ask"]
        for part in COMMANDS[command]["calls"]
        for call in TABLE["calls"].get(part, ())
        if call.get("only", kind) == kind
    ]
    return [
        Request(
            action,
            TABLE["resources"][resource].format(**known),
            {**ME, **{key: value.format(**known) for key, value in (context[0] if context else {}).items()}},
        )
        for action, resource, *context in asked
    ]


@pytest.mark.parametrize("team", TEAMS.values())
def test_each_team_may_run_its_commands_and_no_other(cluster: Built, team: str) -> None:
    kind, statements = cluster.spec.cluster.kind, _policies(cluster)[team]
    asked = {command: _requests(cluster, team, command) for command, known in COMMANDS.items() if known.get("only", kind) == kind}
    [key] = cluster.resources("AWS::KMS::Key")
    of_key = cluster.resolved("access", key["KeyPolicy"]["Statement"])
    answers = iter(decisions(statements, [one for requests in asked.values() for one in requests], key_policy=of_key))
    for command, requests in asked.items():
        refused = [request for request, answer in zip(requests, answers, strict=False) if answer != ALLOWED]
        if team[0] in COMMANDS[command]["teams"]:
            assert not refused, command
        elif requests:
            assert refused, command


@pytest.mark.parametrize("team", ["trainer", "reader"])
def test_the_cluster_agrees(team: str) -> None:
    """An operator administers it."""
    rights = cluster_rights(team)
    for command, known in COMMANDS.items():
        if "kubernetes" in known:
            verb, resource = known["kubernetes"].split()
            assert ((resource, verb) in rights) == (team[0] in known["teams"]), command


def test_docs_people_has_this_table(project: Path) -> None:
    lines = (project / "docs" / "people.md").read_text().splitlines()
    told = {}
    for names, *marks in (line.split("|")[1:-1] for line in lines if line.startswith("| `") and line.count("|") == 5):
        teams = "".join(team for team, mark in zip(TEAMS, marks, strict=True) if mark.strip())
        told |= dict.fromkeys(re.findall(r"`([^`]+)`", names), teams)
    assert told == {name: known["teams"] for name, known in COMMANDS.items()}


def test_every_command_of_the_pages_is_in_the_table(project: Path) -> None:
    text = (project / "README.md").read_text() + (project / "docs" / "commands.md").read_text()
    code = "\n".join(re.findall(r"^```(?:sh|console)\n(.*?)^```", text, re.M | re.S))
    lines = [part.strip() for line in code.splitlines() for part in line.lstrip("$ ").split("#")[0].split("&&")]
    cli = get_command(app)
    known = [f"paddle-aws {name}" for name, one in cli.commands.items() if not one.hidden and name != "lock"]  # type: ignore[attr-defined]
    for command in [*filter(None, lines), *known]:
        if command.split()[0] in ("paddle-aws", "cdk", "make"):
            assert row(command.split()).split()[:2] == command.split()[:2] or command.startswith("make"), command


# What no team may do.

THEIRS = {"ssm:resourceTag/cluster": "paddle", **CHECKED}
# The simulator knows no document without an account, as AWS's own are.
AWS = f"arn:aws:ssm:us-west-2:{ACCOUNT}:document/"
MACHINE = TABLE["resources"]["machine"]
TUNNEL = {"ssm:resourceTag/paddle-aws/tunnel": "paddle-tunnel"}


@pytest.mark.parametrize("team", TEAMS.values())
def test_nobody_tunnels_anywhere_else(shipped: Built, team: str) -> None:
    asked = [
        Request("ssm:StartSession", f"{AWS}AWS-StartPortForwardingSessionToRemoteHost", CHECKED),
        Request("ssm:StartSession", f"{AWS}AWS-StartSSHSession", CHECKED),
        Request("ssm:StartSession", f"{AWS}SSM-SessionManagerRunShell", CHECKED),
        Request("ssm:StartSession", f"{AWS}other-tunnel", CHECKED),
        # A node, the tunnel of another cluster; and a session without a document that anybody checked.
        Request("ssm:StartSession", MACHINE, THEIRS),
        Request("ssm:StartSession", MACHINE, {"ssm:resourceTag/paddle-aws/tunnel": "other-tunnel", **CHECKED}),
        Request("ssm:StartSession", MACHINE, {"ssm:SessionDocumentAccessCheck": "false", **TUNNEL}),
        Request("ssm:TerminateSession", TABLE["resources"]["session"], {"aws:userid": "AROAEXAMPLE:you"}),
        Request("ssm:SendCommand", MACHINE, TUNNEL),
    ]
    assert set(decisions(_policies(shipped)[team], asked)) == {"ImplicitlyDenied"}


def test_a_public_endpoint_has_no_tunnel(built: Callable[..., Built]) -> None:
    public = built(cluster={"public_access_from": ["203.0.113.7/32"]})
    assert public.whole("AWS::SSM::Document") == {} == public.whole("AWS::AutoScaling::AutoScalingGroup")
    assert "TunnelCommand" not in public.templates["cluster"]["Outputs"]
    for statements in _policies(public).values():
        assert "ssm:StartSession" not in json.dumps(statements)


def test_the_tunnels_machine_takes_no_connection(cluster: Built) -> None:
    machines = [one["LaunchTemplateData"] for one in cluster.resources("AWS::EC2::LaunchTemplate", "cluster")]
    [machine] = [one for one in machines if one.get("InstanceType") == TUNNEL_TYPE]
    [disk] = [one["Ebs"] for one in machine["BlockDeviceMappings"]]
    assert (disk["VolumeSize"], disk["Encrypted"], machine["MetadataOptions"]["HttpTokens"]) == (TUNNEL_DISK, True, "required")
    assert machine["NetworkInterfaces"][0]["AssociatePublicIpAddress"] is False and "KeyName" not in machine
    [document] = cluster.resources("AWS::SSM::Document")
    properties = document["Content"]["properties"]
    assert list(document["Content"]["parameters"]) == ["localPortNumber"]
    assert properties["portNumber"] == ("443" if cluster.spec.cluster.kind == "eks" else "6443")
    assert "{{" not in json.dumps([properties["host"], properties["portNumber"]])
    [group] = [name for name in cluster.whole("AWS::EC2::SecurityGroup", "cluster") if name.startswith("Tunnel")]
    assert "SecurityGroupIngress" not in cluster.whole("AWS::EC2::SecurityGroup", "cluster")[group]["Properties"]
    rules = cluster.resources("AWS::EC2::SecurityGroupIngress", "cluster")
    assert not [rule for rule in rules if group in json.dumps(rule["GroupId"])]
    [into] = [rule for rule in rules if group in json.dumps(rule.get("SourceSecurityGroupId"))]
    assert str(into["FromPort"]) == properties["portNumber"]


@pytest.mark.parametrize("team", ["trainer", "reader"])
def test_who_trains_writes_below_sources_and_who_looks_writes_nothing(cluster: Built, team: str) -> None:
    outside = ("cluster/snapshots/x", "output/model", "sources")
    asked = [Request("s3:PutObject", f"{_bucket(cluster)}/{key}", ME) for key in outside]
    asked += [Request("s3:DeleteObject", f"{_bucket(cluster)}/{key}", ME) for key in outside]
    asked += [
        Request("ecr:BatchDeleteImage", TABLE["resources"]["repository"].format(name=cluster.spec.name), ME),
        Request("ecr:PutImage", TABLE["resources"]["repository"].format(name="theirs"), ME),
        Request("secretsmanager:GetSecretValue", TABLE["resources"]["operators"].format(name=cluster.spec.name), ME),
        Request("ssm:GetParameter", TABLE["resources"]["key_pair"], ME),
    ]
    statements = _policies(cluster)[team]
    if team == "reader":
        asked.append(Request("s3:PutObject", f"{_bucket(cluster)}/sources/x", ME))
        actions = {action for one in statements for action in listed(one["Action"])}
        changes = {"ssm:StartSession", "ssm:ResumeSession", "ssm:TerminateSession", "ssmmessages:OpenDataChannel"}
        verbs = ("Describe", "List", "Get", "Filter", "Decrypt", "StartQuery", "StopQuery")
        assert all(action.partition(":")[2].startswith(verbs) for action in actions - changes)
    assert ALLOWED not in decisions(statements, asked)


@pytest.mark.parametrize("team", TEAMS.values())
def test_no_team_reads_a_snapshot_of_etcd(private: Built, team: str) -> None:
    asked = [Request("s3:GetObject", f"{_bucket(private)}/cluster/snapshots/etcd-1", ME)]
    assert decisions(_policies(private)[team], asked) == ["ExplicitlyDenied"]


def test_stars_stand_for_what_has_no_resource_of_its_own(cluster: Built) -> None:
    stars = {one["Sid"] for statements in _policies(cluster).values() for one in statements if one["Resource"] == "*"}
    assert stars - {"LogAnswers"} == {"Look", "BudgetTag", "ImageLogin", "FindTunnel"}


def test_groups_and_roles_hold_the_same_policies(shipped: Built) -> None:
    for stack in ("access", "cluster"):
        for name, policy in shipped.whole("AWS::IAM::ManagedPolicy", stack).items():
            if any(f"{team.title()}Policy" in name for team in TEAMS.values()):
                assert len(policy["Properties"]["Groups"]) == len(policy["Properties"]["Roles"]) == 1
                assert len(json.dumps(policy["Properties"]["PolicyDocument"])) < 6144


def test_a_tunnel_to_a_public_endpoint_is_refused(built: Callable[..., Built]) -> None:
    with pytest.raises(ValueError, match="tunnel is true: allowed with a private endpoint only"):
        built(cluster={"public_access_from": ["203.0.113.7/32"], "tunnel": True})
