"""One emulator per module: it starts in half a second, and its account is empty except for AWS's
own default VPC.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddle_aws.rehearsal.cloud import Cloud

PROJECT = Path(__file__).parents[2]
PARTS = [Path(__file__).parent / "parts" / "refusals.py"]
"""Refusals that a rehearsal never meets: it deploys once, changes nothing, and looks nothing up."""
Deploy = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(project=PROJECT, state=tmp_path_factory.mktemp("cloud"), parts=PARTS) as started:
        yield started


@pytest.fixture
def deploy(cloud: Cloud) -> Iterator[Deploy]:
    """`deploy(name, template)` creates or updates a stack with boto3. Returns its new state, with
    its events' reasons. The stacks are deleted afterwards, the last one first.
    """
    api = cloud.client("cloudformation")
    names: list[str] = []

    def deployed(name: str, template: dict[str, Any]) -> dict[str, Any]:
        given = {"TemplateBody": json.dumps(template), "Capabilities": ["CAPABILITY_NAMED_IAM"]}
        (api.update_stack if name in names else api.create_stack)(StackName=name, **given)
        names.append(name)
        stack = settled(api, name)
        events = api.describe_stack_events(StackName=name)["StackEvents"]
        return {**stack, "reasons": [event.get("ResourceStatusReason", "") for event in events]}

    yield deployed
    for name in dict.fromkeys(reversed(names)):
        api.delete_stack(StackName=name)
        assert settled(api, name) == {}


def settled(api: Any, name: str) -> dict[str, Any]:
    """Returns a stack once its operation has ended; {} if it is gone. A Lambda function's part
    continues after the call.
    """
    while True:
        description: dict[str, Any] = {
            stack["StackName"]: stack for stack in api.describe_stacks()["Stacks"]
        }.get(name, {})
        if not description.get("StackStatus", "").endswith("_IN_PROGRESS"):
            return description
        time.sleep(0.1)
