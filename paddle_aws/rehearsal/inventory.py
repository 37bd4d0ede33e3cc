"""What exists in the emulated account, to compare the state before a deploy with the state after a
destroy; and what a destroy retains.

The inventory covers every service of the emulator, not only those that the app is known to use. A
key that is pending deletion counts as gone, because AWS deletes no key at once (7 to 30 days). The
deployed templates say what is retained.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from paddle_aws.operations.account.aws import list_all


class Resource(NamedTuple):
    """One resource in the account: its service, its type within that service, and its
    identifier.
    """

    service: str
    type: str
    id: str

    def __str__(self) -> str:
        return f"{self.service} {self.type} {self.id}"


Inventory = frozenset[Resource]
"""A snapshot of the account."""


def retention_test(client: Callable[[str], Any], stacks: list[str]) -> Callable[[Resource], bool]:
    """Returns a function that says whether a resource outlives `stacks` as deployed now: a retained
    resource, a part of one, or a volume's snapshot. `client` makes a client of the account by its
    service.
    """
    cloudformation = client("cloudformation")
    ids: dict[str, set[str]] = {"Retain": set(), "Snapshot": set()}
    for stack in stacks:
        body = cloudformation.get_template(StackName=stack)["TemplateBody"]
        template = body if isinstance(body, dict) else json.loads(body)
        policies = {
            name: resource.get("DeletionPolicy", "")
            for name, resource in template["Resources"].items()
        }
        for part in list_all(
            cloudformation, "list_stack_resources", "StackResourceSummaries[]", StackName=stack
        ):
            for kind, resources in ids.items():
                if policies.get(part["LogicalResourceId"], "").startswith(kind) and part.get(
                    "PhysicalResourceId"
                ):
                    resources.add(part["PhysicalResourceId"])

    def outlives(resource: Resource) -> bool:
        if resource.type == "snapshot" and ids["Snapshot"]:
            [snapshot] = client("ec2").describe_snapshots(SnapshotIds=[resource.id])["Snapshots"]
            return snapshot["VolumeId"] in ids["Snapshot"]
        # The ids of a bucket's objects and settings contain its name.
        return any(part in resource.id for part in ids["Retain"])

    return outlives
