"""A self-managed cluster: its kubeconfig from Secrets Manager, the tunnel and `leftovers`.

The session-manager-plugin here belongs to the tests: it records what it gets, ends or listens, and
forwards nothing.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import stat
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_api import AwsApi, Parameters, Refused
from commands import Run
from kubernetes_api import kubeconfig
from listeners import listeners, processes

from paddle_aws.operations.cluster.cluster_api import ClusterApi
from paddle_aws.operations.main import app

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
CONFIG = PROJECT / "tests" / "aws" / "variants" / "self-managed-cluster.yaml"
SHIPPED = PROJECT / "cluster.yaml"
OPERATORS = "tutorial/kubeconfig/operator"
TOKEN = "a-client-key-that-nobody-may-see"
USER = {"client-certificate-data": "Q0VSVA==", "client-key-data": TOKEN}
KUBECONFIG = kubeconfig("https://203.0.113.9:6443", USER, **{"certificate-authority-data": "Q0E="})


@pytest.fixture
def secrets(aws_api: AwsApi) -> dict[str, str | Refused]:
    """Maps each secret's name to its text or to AWS's refusal. Other secrets may not be read."""
    values: dict[str, str | Refused] = {OPERATORS: KUBECONFIG}

    def answer(asked: Parameters) -> dict[str, Any]:
        text = values.get(
            asked["SecretId"],
            Refused("AccessDeniedException", "x may not secretsmanager:GetSecretValue"),
        )
        if isinstance(text, Refused):
            raise text
        return {"Name": asked["SecretId"], "SecretString": text}

    aws_api.answer("secretsmanager", "GetSecretValue", answer)
    return values


def test_each_team_has_a_kubeconfig_that_is_merged_and_never_shown(
    run: Run,
    secrets: dict[str, str | Refused],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "config"
    done = run("kubeconfig", str(CONFIG), "--file", str(file))
    assert (done.code, done.out) == (0, "")
    assert done.err == f"{file} has the context tutorial, and it is the current one\n"
    assert yaml.safe_load(file.read_text())["users"] == [{"name": "tutorial", "user": USER}]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    # Advice about AWS fits this cluster. Its address does not show that; the entry does.
    config = yaml.safe_load(file.read_text())
    config["users"] = [{"name": "tutorial", "user": {"token": "x"}}]
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    (tmp_path / "readable").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "readable"))
    assert ClusterApi().aws

    secrets["tutorial/kubeconfig/trainer"] = secrets.pop(OPERATORS)
    done = run("kubeconfig", str(CONFIG), "--file", str(file), "--team", "trainer")
    assert done.code == 0 and "context tutorial-trainer" in done.err
    done = run("kubeconfig", str(CONFIG), "--file", str(file))
    assert done.code == 3
    assert (
        done.err
        == f"you may not read secret {OPERATORS}: --team names another team (operator, trainer, "
        "reader)\n"
    )


def test_a_secret_that_holds_none(
    run: Run, secrets: dict[str, str | Refused], tmp_path: Path
) -> None:
    no_value = "Secrets Manager can't find the specified secret value for staging label: AWSCURRENT"
    for secret, code, sentence in (
        (
            Refused("ResourceNotFoundException", no_value),
            3,
            "has not written its kubeconfig yet: wait until it has started",
        ),
        (
            Refused("ResourceNotFoundException", "can't find the specified secret."),
            2,
            "deploy the cluster, or correct name and",
        ),
        (f"[{TOKEN}", 2, "holds no kubeconfig"),
    ):
        secrets[OPERATORS] = secret
        done = run("kubeconfig", str(CONFIG), "--file", str(tmp_path / "config"))
        assert done.code == code and sentence in done.err and TOKEN not in done.err
        assert not (tmp_path / "config").exists()


PLUGIN = """#!{python}
import json, os, socket, sys, time
if sys.argv[1:] == ["--version"]:
    print("{version}"); sys.exit()
shown = {{"arguments": sys.argv[1:], "response": json.loads(os.environ[sys.argv[1]])}}
try:
    if {seconds}:  # It opens the port as AWS's does: on the loopback address.
        port = json.loads(sys.argv[5])["Parameters"]["localPortNumber"][0]
        server = socket.create_server(("127.0.0.1", int(port)))
    open("{shown}", "w").write(json.dumps(shown))
    time.sleep({seconds})
except KeyboardInterrupt:
    pass
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aws_api: AwsApi) -> Path:
    """Installs the plugin's stand-in for a cluster whose tunnel machine runs. Returns the file of
    what the plugin got.
    """
    install(tmp_path, monkeypatch)
    aws_api.answer(
        "ec2", "DescribeInstances", {"Reservations": [{"Instances": [{"InstanceId": "i-0tunnel"}]}]}
    )
    session = {"SessionId": "me-1", "TokenValue": "session-token", "StreamUrl": "wss://stream"}
    aws_api.answer("ssm", "StartSession", session)
    aws_api.answer("ssm", "TerminateSession", {"SessionId": "me-1"})
    return tmp_path / "shown"


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, version: str = "1.2.707.0", seconds: float = 0
) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin" / "session-manager-plugin"
    text = PLUGIN.format(
        python=sys.executable, version=version, shown=folder / "shown", seconds=seconds
    )
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


@pytest.fixture
def tunnel(secrets: dict[str, str | Refused], plugin: Path, tmp_path: Path) -> tuple[str, ...]:
    """The command's arguments for a tunnel to the self-managed cluster with a private endpoint."""
    settings = yaml.safe_load(CONFIG.read_text())
    settings["cluster"] |= {"public_access_from": [], "elastic_ip": False}
    (tmp_path / "private.yaml").write_text(yaml.safe_dump(settings))
    return (
        "kubeconfig",
        str(tmp_path / "private.yaml"),
        "--file",
        str(tmp_path / "config"),
        "--tunnel",
    )


def test_a_tunnel_leads_where_its_document_leads(
    run: Run, aws_api: AwsApi, plugin: Path, tunnel: tuple[str, ...], tmp_path: Path
) -> None:
    done = run(*tunnel, "--port", "6444")
    assert done.code == 0, done.err
    assert (
        "leads through this tunnel (127.0.0.1:6444); Ctrl-C closes it\nthe tunnel is closed\n"
        in done.err
    )
    [request] = aws_api.asked("DescribeInstances")
    assert request["Filters"][0] == {"Name": "tag:paddle-aws/tunnel", "Values": ["tutorial-tunnel"]}
    [asked] = aws_api.asked("StartSession")
    assert asked["Target"] == "i-0tunnel" and asked["DocumentName"] == "tutorial-tunnel"
    assert asked["Parameters"] == {"localPortNumber": ["6444"]}
    assert aws_api.asked("TerminateSession") == [{"SessionId": "me-1"}]
    shown = json.loads(plugin.read_text())
    assert shown["response"]["TokenValue"] == "session-token"
    assert shown["arguments"][:3] == ["AWS_SSM_START_SESSION_RESPONSE", "us-west-2", "StartSession"]
    # Anybody may read a command line.
    assert "session-token" not in json.dumps(shown["arguments"]) + done.err
    (cluster,) = yaml.safe_load((tmp_path / "config").read_text())["clusters"]
    assert cluster["cluster"] == {
        "server": "https://127.0.0.1:6444",
        "certificate-authority-data": "Q0E=",
    }


def test_a_tunnel_to_eks_keeps_the_name_of_the_certificate(
    run: Run, aws_api: AwsApi, plugin: Path, tmp_path: Path
) -> None:
    paddle = {
        "name": "paddle",
        "arn": "arn:aws:eks:us-west-2:000000000000:cluster/paddle",
        "status": "ACTIVE",
        "endpoint": "https://abc.eks.example",
        "certificateAuthority": {"data": "Q0E="},
        "resourcesVpcConfig": {"endpointPublicAccess": False},
    }
    caller = {"UserId": "AIDA", "Account": "0" * 12, "Arn": f"arn:aws:iam::{'0' * 12}:user/me"}
    role = {"OutputKey": "OperatorRoleArn", "OutputValue": f"arn:aws:iam::{'0' * 12}:role/operator"}
    stack = {
        "StackName": "paddle-access",
        "CreationTime": "2026-01-01T00:00:00Z",
        "StackStatus": "CREATE_COMPLETE",
        "Outputs": [role],
    }
    aws_api.answer("sts", "GetCallerIdentity", caller)
    aws_api.answer("cloudformation", "DescribeStacks", {"Stacks": [stack]})
    aws_api.answer("eks", "DescribeCluster", {"cluster": paddle})
    done = run("kubeconfig", str(SHIPPED), "--file", str(tmp_path / "config"), "--tunnel")
    assert done.code == 0, done.err
    [asked] = aws_api.asked("StartSession")
    assert asked["DocumentName"] == "paddle-tunnel" and asked["Parameters"] == {
        "localPortNumber": ["8443"]
    }
    (cluster,) = yaml.safe_load((tmp_path / "config").read_text())["clusters"]
    assert cluster["cluster"]["server"] == "https://127.0.0.1:8443"
    assert cluster["cluster"]["tls-server-name"] == "abc.eks.example"
    # For a cluster without a tunnel, the command says so.
    (tmp_path / "cluster.yaml").write_text("retain: false\ncluster: {tunnel: false}\n")
    for public, why in (
        (False, "its endpoint is private: set cluster.tunnel true and deploy"),
        (True, "its endpoint is public"),
    ):
        paddle["resourcesVpcConfig"] = {"endpointPublicAccess": public}
        done = run(
            "kubeconfig",
            str(tmp_path / "cluster.yaml"),
            "--file",
            str(tmp_path / "none"),
            "--tunnel",
        )
        assert (done.code, done.err) == (2, f"cluster paddle has no tunnel: {why}\n")
    assert not (tmp_path / "none").exists() and len(aws_api.asked("StartSession")) == 1


def test_nothing_but_the_plugin_listens_and_ctrl_c_closes_the_tunnel(
    aws_api: AwsApi,
    plugin: Path,
    tunnel: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(tmp_path, monkeypatch, seconds=60)
    aws_api.answer("ssm", "TerminateSession", lambda asked: (tmp_path / "ended").touch() or asked)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = multiprocessing.get_context("fork").Process(
        target=in_a_group_of_its_own,
        args=((*tunnel, "--port", str(port)), tmp_path / "errors"),
        daemon=True,
    )
    process.start()
    assert process.pid is not None
    while not plugin.exists():
        assert process.is_alive()
        time.sleep(0.05)
    assert list(listeners(process.pid)) == [("127.0.0.1", port)]
    for number in processes(process.pid):
        # Other users of the machine read it; the environment they do not.
        assert b"session-token" not in Path(f"/proc/{number}/cmdline").read_bytes()
    # To the whole process group, as a terminal does.
    os.killpg(process.pid, signal.SIGINT)
    process.join()
    errors = (tmp_path / "errors").read_text()
    assert (
        process.exitcode == 130
        and errors.endswith("the tunnel is closed\n")
        and "Traceback" not in errors
    )
    assert (tmp_path / "ended").exists()


def in_a_group_of_its_own(arguments: tuple[str, ...], errors: Path) -> None:
    os.setsid()
    sys.stderr = errors.open("w", buffering=1)
    app([*arguments])


def test_what_a_tunnel_needs(
    run: Run,
    aws_api: AwsApi,
    tunnel: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    aws_api.answer("ec2", "DescribeInstances", {"Reservations": []})
    done = run(*tunnel)
    assert done.code == 1 and done.err.splitlines()[-1].startswith(
        "no machine tutorial-tunnel runs in us-west-2"
    )
    install(tmp_path, monkeypatch, version="1.2.497.0")
    done = run(*tunnel)
    assert (
        done.code == 2
        and "session-manager-plugin is 1.2.497.0: one newer than 1.2.497.0 is needed" in done.err
    )
    monkeypatch.setenv("PATH", "/nonexistent")
    done = run(*tunnel)
    assert done.code == 2 and "session-manager-plugin is not installed" in done.err
    assert aws_api.asked("StartSession") == [] and not (tmp_path / "config").exists()


def test_what_a_destroyed_one_may_leave(run: Run, aws_api: AwsApi) -> None:
    text = (
        Path(__file__)
        .with_name("leftovers.yaml")
        .read_text()
        .replace("${here}", "us-west-2:000000000000")
    )
    table = yaml.safe_load(text)

    def left(
        answers: dict[str, Any], tags: list[dict[str, str]]
    ) -> tuple[list[dict[str, str]], dict[str, list[str]]]:
        for operation, answer in answers.items():
            aws_api.answer(*operation.split(), answer)
        mappings = [{"ResourceARN": arn, "Tags": tags} for arn in table["tagged"]]
        tagged = {"PaginationToken": "", "ResourceTagMappingList": mappings}
        aws_api.answer("resourcegroupstaggingapi", "GetResources", tagged)
        done = run("leftovers", str(CONFIG), "--json")
        assert done.code == 1
        return json.loads(done.out)["left"], json.loads(done.out)["not_asked"]

    parts, unasked = left(table["gone"], [])
    assert {
        part["id"]: part["command"].removesuffix(" --region us-west-2") for part in parts
    } == table["commands"]
    assert all(
        part["command"].endswith(" --region us-west-2") for part in parts if part["service"] != "s3"
    )
    # What was not answered here is listed as not asked, never taken for empty; EKS is not asked at
    # all.
    names = [name for group in unasked.values() for name in group]
    assert "log groups" in names and "clusters" not in names

    summaries = [resource(id) for id in table["owned"]] + [resource("vpc-1", "DELETE_SKIPPED")]
    aws_api.answer("cloudformation", "ListStackResources", {"StackResourceSummaries": summaries})
    parts, _ = left(
        table["live"], [{"Key": "aws:cloudformation:stack-name", "Value": "tutorial-nodes"}]
    )
    deployed = {
        part["id"]
        for part in parts
        if part["expected"] == "deployed" and part["command"] == "cdk destroy tutorial-nodes"
    }
    assert set(table["deployed"]) <= deployed
    assert set(table["nobodys"]) <= {part["id"] for part in parts} - deployed


def resource(id: str, state: str = "CREATE_COMPLETE") -> dict[str, Any]:
    what = {"LogicalResourceId": "One", "PhysicalResourceId": id, "ResourceType": "AWS::Any::Thing"}
    return what | {"ResourceStatus": state, "LastUpdatedTimestamp": datetime.now(UTC)}
