"""A self-managed cluster: its kubeconfig out of Secrets Manager, the tunnel, `doctor` and `leftovers`.

The session-manager-plugin here is a program of the tests: it shows what it is given and ends, and forwards nothing.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_api import AwsApi, Parameters, Refused
from commands import Run

from operations.account import account_checks, account_search
from operations.account.account_checks import AccountChecks
from operations.account.deployed_checks import DeployedChecks
from stacks.cluster_spec import ClusterSpec

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
CONFIG = PROJECT / "tests" / "aws" / "variants" / "self-managed-cluster.yaml"
SHIPPED = PROJECT / "cluster.yaml"
TOKEN = "a-client-key-that-nobody-may-see"
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "default", "cluster": {"server": "https://203.0.113.9:6443", "certificate-authority-data": "Q0E="}}],
    "users": [{"name": "default", "user": {"client-certificate-data": "Q0VSVA==", "client-key-data": TOKEN}}],
    "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
    "current-context": "default",
}


@pytest.fixture
def spec() -> ClusterSpec:
    return ClusterSpec.load(CONFIG)


@pytest.fixture
def secrets(aws_api: AwsApi) -> dict[str, str | None]:
    """Secrets by name; None: one without a value. What is not here may not be read."""
    found: dict[str, str | None] = {"tutorial/kubeconfig/operator": yaml.safe_dump(KUBECONFIG)}

    def answer(asked: Parameters) -> dict[str, Any]:
        name = asked["SecretId"]
        if name not in found:
            raise Refused(
                "AccessDeniedException", f"User: x is not authorized to perform: secretsmanager:GetSecretValue on {name}"
            )
        if (text := found[name]) is None:
            why = "Secrets Manager can't find the specified secret value for staging label: AWSCURRENT"
            raise Refused("ResourceNotFoundException", why)
        return {"Name": name, "SecretString": text}

    aws_api.answer("secretsmanager", "GetSecretValue", answer)
    return found


def test_the_kubeconfig_is_merged_and_never_shown(run: Run, secrets: dict[str, str | None], tmp_path: Path) -> None:
    file = tmp_path / "config"
    other = {"name": "other", "cluster": {"server": "https://other.example"}}
    file.write_text(yaml.safe_dump({"clusters": [other], "current-context": "other"}))
    for _ in range(2):
        done = run("kubeconfig", str(CONFIG), "--file", str(file))
        assert done.code == 0, done.err
    assert done.err == f"as the operator of cluster tutorial\n{file} has the context tutorial, and it is the current one\n"
    assert TOKEN not in done.out + done.err
    found = yaml.safe_load(file.read_text())
    assert [one["name"] for one in found["clusters"]] == ["other", "tutorial"]
    assert found["users"] == [{"name": "tutorial", "user": KUBECONFIG["users"][0]["user"]}]  # type: ignore[index]
    assert found["current-context"] == "tutorial"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_each_team_has_its_own(run: Run, secrets: dict[str, str | None], tmp_path: Path) -> None:
    secrets.clear()
    secrets["tutorial/kubeconfig/trainer"] = yaml.safe_dump(KUBECONFIG)
    done = run("kubeconfig", str(CONFIG), "--file", str(tmp_path / "config"))
    assert done.code == 0 and "as the trainer of cluster tutorial" in done.err and "context tutorial-trainer" in done.err
    done = run("kubeconfig", str(CONFIG), "--file", str(tmp_path / "config"), "--team", "operator")
    assert done.code == 3 and "AWS refused GetSecretValue: AccessDeniedException" in done.err
    secrets.clear()
    assert run("kubeconfig", str(CONFIG)).code == 3


def test_a_control_plane_that_has_not_started(run: Run, aws_api: AwsApi, secrets: dict[str, str | None], tmp_path: Path) -> None:
    file = tmp_path / "config"
    secrets["tutorial/kubeconfig/operator"] = None
    done = run("kubeconfig", str(CONFIG), "--file", str(file))
    assert (done.code, done.err) == (
        3,
        "the control plane of tutorial has not written its kubeconfig yet: wait until it has started (some minutes)\n",
    )
    aws_api.refuse("secretsmanager", "GetSecretValue", "ResourceNotFoundException", "can't find the specified secret.")
    done = run("kubeconfig", str(CONFIG), "--file", str(file))
    assert done.code == 2 and "deploy the cluster, or correct name and region" in done.err
    secrets["tutorial/kubeconfig/operator"] = f"[{TOKEN}"
    aws_api.answer("secretsmanager", "GetSecretValue", {"SecretString": f"[{TOKEN}"})
    done = run("kubeconfig", str(CONFIG), "--file", str(file))
    assert done.code == 2 and "holds no kubeconfig" in done.err and TOKEN not in done.err
    assert not file.exists()


# The tunnel.

PLUGIN = """#!{python}
import json, os, sys, time
if sys.argv[1:] == ["--version"]:
    print("{version}"); sys.exit()
shown = {{"arguments": sys.argv[1:], "response": json.loads(os.environ[sys.argv[1]])}}
try:
    open("{shown}", "w").write(json.dumps(shown))
    time.sleep({seconds})
except KeyboardInterrupt:
    pass
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aws_api: AwsApi) -> Path:
    """The plugin's stand-in, and a cluster whose tunnel's machine runs."""
    install(tmp_path, monkeypatch)
    aws_api.answer("ec2", "DescribeInstances", {"Reservations": [{"Instances": [{"InstanceId": "i-0tunnel"}]}]})
    session = {"SessionId": "me-1", "TokenValue": "session-token", "StreamUrl": "wss://stream"}
    aws_api.answer("ssm", "StartSession", session)
    aws_api.answer("ssm", "TerminateSession", {"SessionId": "me-1"})
    return tmp_path / "shown"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str = "1.2.707.0", seconds: float = 0) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin" / "session-manager-plugin"
    text = PLUGIN.format(python=sys.executable, version=version, shown=folder / "shown", seconds=seconds)
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


@pytest.fixture
def private(tmp_path: Path) -> str:
    """The self-managed cluster, with a private endpoint."""
    settings = yaml.safe_load(CONFIG.read_text())
    settings["cluster"] |= {"public_access_from": [], "elastic_ip": False}
    (tmp_path / "private.yaml").write_text(yaml.safe_dump(settings))
    return str(tmp_path / "private.yaml")


def test_a_tunnel_leads_where_its_document_leads(
    run: Run, aws_api: AwsApi, secrets: dict[str, str | None], plugin: Path, private: str, tmp_path: Path
) -> None:
    done = run("kubeconfig", private, "--file", str(tmp_path / "config"), "--tunnel", "--port", "6444")
    assert done.code == 0, done.err
    assert "leads through this tunnel (127.0.0.1:6444); Ctrl-C closes it\nthe tunnel is closed\n" in done.err
    [found] = aws_api.asked("DescribeInstances")
    assert (found["Filter.1.Name"], found["Filter.1.Value.1"]) == ("tag:paddle-aws/tunnel", "tutorial-tunnel")
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
    assert cluster["cluster"] == {"server": "https://127.0.0.1:6444", "certificate-authority-data": "Q0E="}


def described(aws_api: AwsApi, name: str, public: bool) -> None:
    found = {
        "name": name,
        "arn": f"arn:aws:eks:us-west-2:000000000000:cluster/{name}",
        "status": "ACTIVE",
        "endpoint": "https://abc.eks.example",
        "certificateAuthority": {"data": "Q0E="},
        "resourcesVpcConfig": {"endpointPublicAccess": public},
    }
    aws_api.rest[f"/clusters/{name}"] = {"cluster": found}


def test_a_tunnel_to_eks_keeps_the_name_of_the_certificate(run: Run, aws_api: AwsApi, plugin: Path, tmp_path: Path) -> None:
    described(aws_api, "paddle", public=False)
    done = run("kubeconfig", str(SHIPPED), "--file", str(tmp_path / "config"), "--tunnel")
    assert done.code == 0, done.err
    [asked] = aws_api.asked("StartSession")
    assert asked["DocumentName"] == "paddle-tunnel" and asked["Parameters"] == {"localPortNumber": ["8443"]}
    (cluster,) = yaml.safe_load((tmp_path / "config").read_text())["clusters"]
    assert cluster["cluster"]["server"] == "https://127.0.0.1:8443"
    assert cluster["cluster"]["tls-server-name"] == "abc.eks.example"
    done = run("kubeconfig", str(SHIPPED), "--team", "trainer")
    assert done.code == 2 and done.err.startswith("--team is trainer: on EKS the role that you have taken decides")


def test_a_cluster_without_a_tunnel_says_so(run: Run, aws_api: AwsApi, plugin: Path, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("retain: false\ncluster: {tunnel: false}\n")
    for public, why in ((True, "its endpoint is public"), (False, "its endpoint is private: set cluster.tunnel true and deploy")):
        described(aws_api, "paddle", public)
        done = run("kubeconfig", str(tmp_path / "cluster.yaml"), "--file", str(tmp_path / "config"), "--tunnel")
        assert (done.code, done.err) == (2, f"cluster paddle has no tunnel: {why}\n")
    assert not (tmp_path / "config").exists() and aws_api.asked("StartSession") == []


def test_ctrl_c_closes_the_tunnel(
    aws_api: AwsApi, secrets: dict[str, str | None], plugin: Path, private: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, seconds=60)
    process = subprocess.Popen(
        [sys.executable, "-m", "operations.main", "kubeconfig", private, "--file", str(tmp_path / "config"), "--tunnel"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        start_new_session=True,
    )
    deadline = time.monotonic() + 90
    while not plugin.exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    # As a terminal does: to all of the process group.
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors.endswith("the tunnel is closed\n") and "Traceback" not in errors
    assert len(aws_api.asked("TerminateSession")) == 1


def test_what_a_tunnel_needs(
    run: Run,
    aws_api: AwsApi,
    secrets: dict[str, str | None],
    plugin: Path,
    private: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = ("kubeconfig", private, "--file", str(tmp_path / "config"), "--tunnel")
    aws_api.answer("ec2", "DescribeInstances", {"Reservations": []})
    done = run(*arguments)
    assert done.code == 1 and done.err.splitlines()[-1].startswith("no machine tutorial-tunnel runs in us-west-2")
    install(tmp_path, monkeypatch, version="1.2.497.0")
    done = run(*arguments)
    assert done.code == 2 and "session-manager-plugin is 1.2.497.0: one newer than 1.2.497.0 is needed" in done.err
    monkeypatch.setenv("PATH", "/nonexistent")
    done = run(*arguments)
    assert done.code == 2 and "session-manager-plugin is not installed" in done.err
    assert aws_api.asked("StartSession") == [] and not (tmp_path / "config").exists()


# Ready, and gone.


def ready(aws_api: AwsApi, spec: ClusterSpec) -> dict[str, tuple[str, str]]:
    outputs = [{"OutputKey": "ControlPlaneAddress", "OutputValue": "172.20.0.9"}]
    stack = {"StackName": "tutorial-cluster", "StackStatus": "CREATE_COMPLETE", "CreationTime": datetime.now(UTC)}
    aws_api.answer("cloudformation", "DescribeStacks", {"Stacks": [stack | {"Outputs": outputs}]})
    wanted = ("control plane", "kubeconfig", "groups")
    checks = [check for check in DeployedChecks(spec, AccountChecks(spec)).ready() if check[0] in wanted]
    return {one.check: (one.state, one.text) for one in account_checks.run(checks)}


def test_a_cluster_that_is_ready_and_one_that_is_not(aws_api: AwsApi, spec: ClusterSpec) -> None:
    machine = {"InstanceId": "i-0control", "PrivateIpAddress": "172.20.0.9", "State": {"Name": "running", "Code": 16}}
    aws_api.answer("ec2", "DescribeInstances", {"Reservations": [{"Instances": [machine]}]})
    aws_api.answer("secretsmanager", "DescribeSecret", {"Name": "s", "VersionIdsToStages": {"v" * 32: ["AWSCURRENT"]}})
    group = {
        "AutoScalingGroupName": "tutorial-nodes-workers",
        "MinSize": 1,
        "MaxSize": 3,
        "DesiredCapacity": 1,
        "DefaultCooldown": 300,
        "AvailabilityZones": ["us-west-2a"],
        "HealthCheckType": "EC2",
        "CreatedTime": datetime.now(UTC),
        "Instances": [
            {
                "InstanceId": "i-0node",
                "AvailabilityZone": "us-west-2a",
                "LifecycleState": "InService",
                "HealthStatus": "Healthy",
                "ProtectedFromScaleIn": False,
            }
        ],
    }
    aws_api.answer("autoscaling", "DescribeAutoScalingGroups", {"AutoScalingGroups": [group]})
    found = ready(aws_api, spec)
    assert {state for state, _ in found.values()} == {"ok"}, found
    assert found["groups"][1] == "tutorial-nodes-workers has 1 of 1 machines in service"

    aws_api.answer("ec2", "DescribeInstances", {"Reservations": []})
    aws_api.answer("secretsmanager", "DescribeSecret", {"Name": "s"})
    aws_api.answer("autoscaling", "DescribeAutoScalingGroups", {"AutoScalingGroups": [group | {"Instances": []}]})
    found = ready(aws_api, spec)
    assert {state for state, _ in found.values()} == {"problem"}, found


def test_what_a_destroyed_one_may_leave(aws_api: AwsApi, spec: ClusterSpec) -> None:
    arn = "arn:aws:{}:us-west-2:000000000000:{}"
    tagged = [
        arn.format("secretsmanager", "secret:tutorial/kubeconfig/operator-AbCdEf"),
        arn.format("ec2", "elastic-ip/eipalloc-1"),
        arn.format("ec2", "dhcp-options/dopt-1"),
        arn.format("ec2", "instance/i-0gone"),
        arn.format("ec2", "launch-template/lt-1"),
        arn.format("logs", "log-group:/tutorial/flow"),
        arn.format("eks", "nodegroup/shared/workers/0a-1b"),
        arn.format("eks", "addon/shared/vpc-cni/0c"),
        arn.format("eks", "access-entry/shared/role/000000000000/nodes/0d"),
        arn.format("eks", "podidentityassociation/shared/a-1"),
        arn.format("cloudwatch", "alarm:tutorial-full"),
        "arn:aws:s3:::tutorial-storage-bucket",
    ]
    mappings: list[dict[str, Any]] = [{"ResourceARN": one, "Tags": []} for one in tagged]
    now = datetime.now(UTC)
    aws_api.answer("cloudformation", "DescribeStacks", {"Stacks": []})
    aws_api.answer("resourcegroupstaggingapi", "GetResources", {"PaginationToken": "", "ResourceTagMappingList": mappings})
    gone = {"InstanceId": "i-0gone", "State": {"Name": "terminated", "Code": 48}}
    aws_api.answer("ec2", "DescribeInstances", {"Reservations": [{"Instances": [gone]}]})
    aws_api.answer("ec2", "DescribeSnapshots", {"Snapshots": [{"SnapshotId": "snap-1"}]})
    aws_api.answer("ec2", "DescribeVpcs", {"Vpcs": [{"VpcId": "vpc-1"}]})
    volume = {"VolumeId": "vol-1", "State": "available"}
    aws_api.answer("ec2", "DescribeVolumes", {"Volumes": [volume]})
    aws_api.answer("ec2", "DescribeAddresses", {"Addresses": [{"AllocationId": "eipalloc-1"}]})
    aws_api.answer("ec2", "DescribeNetworkInterfaces", {"NetworkInterfaces": [{"NetworkInterfaceId": "eni-1"}]})
    aws_api.answer("ec2", "DescribeKeyPairs", {"KeyPairs": [{"KeyName": "tutorial", "KeyPairId": "key-1"}]})
    aws_api.answer("ec2", "DescribeLaunchTemplates", {"LaunchTemplates": [{"LaunchTemplateId": "lt-1"}]})
    group = {
        "AutoScalingGroupName": "tutorial-nodes-x",
        "MinSize": 0,
        "MaxSize": 1,
        "DesiredCapacity": 0,
        "DefaultCooldown": 300,
        "AvailabilityZones": ["us-west-2a"],
        "HealthCheckType": "EC2",
        "CreatedTime": now,
    }
    aws_api.answer("autoscaling", "DescribeAutoScalingGroups", {"AutoScalingGroups": [group]})
    aws_api.answer("secretsmanager", "ListSecrets", {"SecretList": [{"Name": "tutorial/ca-hash"}]})
    found, unasked = account_search.search(spec)
    assert {one.id: one.command for one in found} == {
        "secret tutorial/kubeconfig/operator": "aws secretsmanager delete-secret --force-delete-without-recovery "
        "--secret-id tutorial/kubeconfig/operator --region us-west-2",
        "secret tutorial/ca-hash": "aws secretsmanager delete-secret --force-delete-without-recovery "
        "--secret-id tutorial/ca-hash --region us-west-2",
        "elastic-ip eipalloc-1": "aws ec2 release-address --allocation-id eipalloc-1 --region us-west-2",
        "dhcp-options dopt-1": "aws ec2 delete-dhcp-options --dhcp-options-id dopt-1 --region us-west-2",
        "launch-template lt-1": "aws ec2 delete-launch-template --launch-template-id lt-1 --region us-west-2",
        "log-group /tutorial/flow": "aws logs delete-log-group --log-group-name /tutorial/flow --region us-west-2",
        "snapshot snap-1": "aws ec2 delete-snapshot --snapshot-id snap-1 --region us-west-2",
        "vpc vpc-1": "aws ec2 delete-vpc --vpc-id vpc-1 --region us-west-2",
        "volume vol-1": "aws ec2 delete-volume --volume-id vol-1 --region us-west-2",
        "network-interface eni-1": "aws ec2 delete-network-interface --network-interface-id eni-1 --region us-west-2",
        "key-pair key-1": "aws ec2 delete-key-pair --key-pair-id key-1 --region us-west-2",
        "parameter /ec2/keypair/key-1": "aws ssm delete-parameter --name /ec2/keypair/key-1 --region us-west-2",
        "group tutorial-nodes-x": "aws autoscaling delete-auto-scaling-group --force-delete "
        "--auto-scaling-group-name tutorial-nodes-x --region us-west-2",
        "nodegroup shared/workers/0a-1b": "aws eks delete-nodegroup --cluster-name shared --nodegroup-name workers "
        "--region us-west-2",
        "addon shared/vpc-cni/0c": "aws eks delete-addon --cluster-name shared --addon-name vpc-cni --region us-west-2",
        "access-entry shared/role/000000000000/nodes/0d": "aws eks delete-access-entry --cluster-name shared "
        "--principal-arn arn:aws:iam::000000000000:role/nodes --region us-west-2",
        "podidentityassociation shared/a-1": "aws eks delete-pod-identity-association --cluster-name shared "
        "--association-id a-1 --region us-west-2",
        "alarm tutorial-full": "aws cloudwatch delete-alarms --alarm-names tutorial-full --region us-west-2",
        # Older versions too: the buckets are versioned.
        "tutorial-storage-bucket": "python3 -c \"import boto3; b = boto3.resource('s3').Bucket('tutorial-storage-bucket'); "
        'b.object_versions.delete(); b.delete()"',
    }
    # What was not answered here is said to be unasked, never taken for empty; EKS is not asked at all.
    names = [name for each in unasked.values() for name in each]
    assert "log groups" in names and "clusters" not in names

    # The same account while the stacks live: each is owned by its id, ARN or address, by AWS's own tags, or by its machine.
    for one in mappings:
        one["Tags"] = [{"Key": "aws:cloudformation:stack-name", "Value": "tutorial-nodes"}]
    own = [
        "tutorial-nodes-x",
        "lt-1",
        "203.0.113.9",
        "tutorial",
        arn.format("secretsmanager", "secret:tutorial/ca-hash-AbCdEf"),
        "",
    ]
    live_answers = {
        "DescribeStacks": {"Stacks": [{"StackName": "tutorial-nodes", "StackStatus": "CREATE_COMPLETE", "CreationTime": now}]},
        "ListStackResources": {
            "StackResourceSummaries": [resource(id, now) for id in own] + [resource("vpc-1", now, "DELETE_SKIPPED")]
        },
    }
    for operation, answer in live_answers.items():
        aws_api.answer("cloudformation", operation, answer)
    machine = {"InstanceId": "i-1", "State": {"Name": "running", "Code": 16}}
    machine["Tags"] = [{"Key": "aws:autoscaling:groupName", "Value": "tutorial-nodes-x"}]
    attached = {"InstanceId": "i-1", "DeleteOnTermination": True}
    aws_api.answer("ec2", "DescribeInstances", {"Reservations": [{"Instances": [machine]}]})
    aws_api.answer("ec2", "DescribeVolumes", {"Volumes": [volume | {"Attachments": [attached]}, {"VolumeId": "vol-of-a-claim"}]})
    aws_api.answer(
        "ec2", "DescribeNetworkInterfaces", {"NetworkInterfaces": [{"NetworkInterfaceId": "eni-1", "Attachment": attached}]}
    )
    aws_api.answer("ec2", "DescribeAddresses", {"Addresses": [{"AllocationId": "eipalloc-1", "PublicIp": "203.0.113.9"}]})
    secret = {"Name": "tutorial/ca-hash", "ARN": own[4]}
    aws_api.answer("secretsmanager", "ListSecrets", {"SecretList": [secret]})
    found, _ = account_search.search(spec)
    deployed = {one.id for one in found if one.expected == "deployed" and one.command == "cdk destroy tutorial-nodes"}
    assert {"stack tutorial-nodes", "group tutorial-nodes-x", "launch-template lt-1", "elastic-ip eipalloc-1"} <= deployed
    assert {"instance i-1", "volume vol-1", "network-interface eni-1", "key-pair key-1", "secret tutorial/ca-hash"} <= deployed
    assert {"nodegroup shared/workers/0a-1b", "access-entry shared/role/000000000000/nodes/0d"} <= deployed
    assert {"volume vol-of-a-claim", "vpc vpc-1", "dhcp-options dopt-1", "tutorial-storage-bucket"} <= {
        one.id for one in found
    } - deployed


def resource(id: str, when: datetime, state: str = "CREATE_COMPLETE") -> dict[str, Any]:
    return {
        "LogicalResourceId": "One",
        "PhysicalResourceId": id,
        "ResourceType": "AWS::Any::Thing",
        "ResourceStatus": state,
        "LastUpdatedTimestamp": when,
    }
