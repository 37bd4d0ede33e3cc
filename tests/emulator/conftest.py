"""One emulator a module: it starts in half a second, its account is empty but for AWS's own default VPC."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rehearsal.cloud import Cloud

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(project=PROJECT, state=tmp_path_factory.mktemp("cloud")) as started:
        yield started


@pytest.fixture
def stack(cloud: Cloud) -> Iterator[Callable[..., dict[str, Any]]]:
    """`stack({logical id: resource})` deploys a template by boto3 and returns its outputs; deleted afterwards."""
    cloudformation = cloud.client("cloudformation")
    made: list[str] = []

    def deploy(resources: dict[str, Any], outputs: dict[str, Any] | None = None, name: str | None = None) -> dict[str, Any]:
        template = {"Resources": resources, "Outputs": {key: {"Value": value} for key, value in (outputs or {}).items()}}
        given = {"TemplateBody": json.dumps(template), "Capabilities": ["CAPABILITY_NAMED_IAM"]}
        if name is None:
            name = f"test-{uuid.uuid4().hex[:8]}"
            cloudformation.create_stack(StackName=name, **given, Tags=[{"Key": "owner", "Value": "tests"}])
            made.append(name)
        else:
            cloudformation.update_stack(StackName=name, **given, Tags=[{"Key": "owner", "Value": "tests"}])
        found = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        if found["StackStatus"] not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
            events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
            reasons = [event["ResourceStatusReason"] for event in events if event["ResourceStatus"].endswith("_FAILED")]
            raise AssertionError("; ".join(reasons))
        return {"StackName": name} | {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", [])}

    yield deploy
    for name in made:
        cloudformation.delete_stack(StackName=name)
        try:
            cloudformation.describe_stacks(StackName=name)
        except cloudformation.exceptions.ClientError:
            continue


def settled(api: Any, name: str) -> dict[str, Any]:
    """A stack as it is when its operation has ended; {} when it is gone. A Lambda function's part goes on behind a call."""
    while True:
        found: dict[str, Any] = {stack["StackName"]: stack for stack in api.describe_stacks()["Stacks"]}.get(name, {})
        if not found.get("StackStatus", "").endswith("_IN_PROGRESS"):
            return found
        time.sleep(0.1)
