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
    """Physical ids of resources that outlive their stacks."""

    ids: frozenset[str]

    @classmethod
    def of(cls, cloud: Cloud, stacks: list[str]) -> Retained:
        """Of `stacks`, as they are deployed now."""
        client = cloud.client("cloudformation")
        ids = set()
        for stack in stacks:
            body = client.get_template(StackName=stack)["TemplateBody"]
            template = body if isinstance(body, dict) else json.loads(body)
            kept = {name for name, one in template["Resources"].items() if one.get("DeletionPolicy", "").startswith("Retain")}
            for page in client.get_paginator("list_stack_resources").paginate(StackName=stack):
                ids |= {
                    one["PhysicalResourceId"]
                    for one in page["StackResourceSummaries"]
                    if one["LogicalResourceId"] in kept and one.get("PhysicalResourceId")
                }
        return cls(frozenset(ids))

    def covers(self, resource: Resource) -> bool:
        """Whether `resource` is one of them, or a part of one: a bucket's objects and settings carry its name."""
        return any(known in resource.id for known in self.ids)
