"""What lies in the emulated account, comparable before a deploy and after a destroy; and what a destroy is meant to leave.

Every service of the emulator is asked, not only those that the app is known to use. A key that waits for its deletion counts as
gone: AWS deletes no key at once (7 to 30 days). What is retained is read from the deployed templates.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

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


@dataclass(frozen=True)
class Retained:
    """What outlives its stack: resources by their physical ids, and of some a snapshot."""

    ids: frozenset[str]
    volumes: frozenset[str]
    """Volumes that leave a snapshot of themselves."""
    cloud: Cloud

    @classmethod
    def of(cls, cloud: Cloud, stacks: list[str]) -> Retained:
        """Of `stacks`, as they are deployed now."""
        client = cloud.client("cloudformation")
        ids: dict[str, set[str]] = {"Retain": set(), "Snapshot": set()}
        for stack in stacks:
            body = client.get_template(StackName=stack)["TemplateBody"]
            template = body if isinstance(body, dict) else json.loads(body)
            policies = {name: one.get("DeletionPolicy", "") for name, one in template["Resources"].items()}
            for page in client.get_paginator("list_stack_resources").paginate(StackName=stack):
                for one in page["StackResourceSummaries"]:
                    for kind, found in ids.items():
                        if policies.get(one["LogicalResourceId"], "").startswith(kind) and one.get("PhysicalResourceId"):
                            found.add(one["PhysicalResourceId"])
        return cls(frozenset(ids["Retain"]), frozenset(ids["Snapshot"]), cloud)

    def covers(self, resource: Resource) -> bool:
        """Whether `resource` is one of them, or a part of one: a bucket's objects and settings carry its name."""
        if resource.type == "snapshot" and self.volumes:
            [snapshot] = self.cloud.client("ec2").describe_snapshots(SnapshotIds=[resource.id])["Snapshots"]
            return snapshot["VolumeId"] in self.volumes
        return any(known in resource.id for known in self.ids)
