"""The emulator's folder does not depend on this project: copied alone, it serves somebody else's
CDK app.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long]

PROJECT = Path(__file__).parents[2]
APP = """
from aws_cdk import App, CfnOutput, Stack
from aws_cdk import aws_dynamodb as dynamodb, aws_ec2 as ec2, aws_iam as iam, aws_sqs as sqs

app = App(analytics_reporting=False)
network = Stack(app, "their-network")
vpc = ec2.Vpc(network, "Vpc", max_azs=2, nat_gateways=1)
shop = Stack(app, "their-shop")
orders = sqs.Queue(shop, "Orders")
key = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
table = dynamodb.Table(shop, "Table", partition_key=key)
role = iam.Role(shop, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
orders.grant_send_messages(role)
ec2.SecurityGroup(shop, "Group", vpc=vpc)
CfnOutput(shop, "OrdersUrl", value=orders.queue_url)
app.synth()
"""


def test_a_foreign_app_is_deployed_and_destroyed(tmp_path: Path) -> None:
    folder = shutil.copytree(
        PROJECT / "paddle_aws" / "rehearsal" / "emulator", tmp_path / "emulator"
    )
    (tmp_path / "app.py").write_text(APP)
    interpreter = PROJECT / ".venv-emulator" / "bin" / "python"
    command = [
        interpreter,
        folder / "server.py",
        "--region",
        "eu-west-1",
        "--scratch",
        tmp_path / "scratch",
    ]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    bare = {
        "PATH": path,
        "HOME": str(tmp_path),
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(Path.home() / ".cache/aws/jsii/package-cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, env=bare
    ) as emulator:
        assert emulator.stdin is not None and emulator.stdout is not None
        ready = json.loads(emulator.stdout.readline())
        endpoint = f"http://localhost:{ready['port']}"
        aws = {
            "AWS_ACCESS_KEY_ID": ready["administrator"][0],
            "AWS_SECRET_ACCESS_KEY": ready["administrator"][1],
            "AWS_REGION": "eu-west-1",
        }

        def cdk(*words: str) -> None:
            run = subprocess.run(
                ["cdk", *words, "--ci", "--no-notices", "--no-version-reporting"],
                cwd=tmp_path,
                env=bare
                | aws
                | {"AWS_ENDPOINT_URL": endpoint, "CDK_DISABLE_CLI_TELEMETRY": "true"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert run.returncode == 0, run.stdout + run.stderr

        session = boto3.session.Session(*ready["administrator"], region_name="eu-west-1")
        queues = session.client("sqs", endpoint_url=endpoint)
        cdk("bootstrap", "aws://000000000000/eu-west-1")
        cdk("deploy", "--all", "--app", f"{sys.executable} app.py", "--require-approval", "never")
        (orders,) = queues.list_queues()["QueueUrls"]
        cdk("destroy", "--all", "--force", "--app", f"{sys.executable} app.py")
        assert orders not in queues.list_queues().get("QueueUrls", [])
        emulator.stdin.close()
    assert emulator.returncode == 0
