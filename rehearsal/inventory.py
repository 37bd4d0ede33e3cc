"""What lies in the emulated account, comparable before a deploy and after a destroy; and what a destroy is meant to leave.

Every service of the emulator is asked, not only those that the app is known to use. A key that waits for its deletion counts as
gone: AWS deletes no key at once (7 to 30 days). What is retained is read from the deployed templates.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from operations.account.aws import every

if TYPE_CHECKING:
    from rehearsal.cloud import Cloud


class Resource(NamedTuple):
    """One thing in the account: the service, the service's own kind of thing, and its identifier."""

    service: str
    type: str
    id: str

    def __str__(self) -> str:
        return f"{self.service} {self.type} {self.id}"


Inventory = frozenset[Resource]
"""A snapshot of the account."""


def retained(cloud: Cloud, stacks: list[str]) -> Callable[[Resource], bool]:
    """Whether a resource is meant to outlive `stacks`, as they are deployed now: it, a part of it, or a volume's snapshot."""
    client = cloud.client("cloudformation")
    ids: dict[str, set[str]] = {"Retain": set(), "Snapshot": set()}
    for stack in stacks:
        body = client.get_template(StackName=stack)["TemplateBody"]
        template = body if isinstance(body, dict) else json.loads(body)
        policies = {name: one.get("DeletionPolicy", "") for name, one in template["Resources"].items()}
        for one in every(client, "list_stack_resources", "StackResourceSummaries[]", StackName=stack):
            for kind, found in ids.items():
                if policies.get(one["LogicalResourceId"], "").startswith(kind) and one.get("PhysicalResourceId"):
                    found.add(one["PhysicalResourceId"])

    def covered(resource: Resource) -> bool:
        if resource.type == "snapshot" and ids["Snapshot"]:
            [snapshot] = cloud.client("ec2").describe_snapshots(SnapshotIds=[resource.id])["Snapshots"]
            return snapshot["VolumeId"] in ids["Snapshot"]
        # A bucket's objects and settings carry its name.
        return any(known in resource.id for known in ids["Retain"])

    return covered
