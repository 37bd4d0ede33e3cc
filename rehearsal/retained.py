"""What a destroy is meant to leave: the resources that the deployed templates themselves say to retain.

Read from the account before the destroy, so that `retain` is judged by what was deployed, not by what was meant.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from rehearsal.cloud import Cloud
from rehearsal.inventory import Resource


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
