"""Objects with fields that cdk8s has no type for: custom resources and their definitions, and a Job of a newer Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdk8s import ApiObject, ApiObjectMetadata, JsonPatch
from constructs import Construct


def add(scope: Construct, document: Mapping[str, Any]) -> None:
    """Adds a whole manifest as it is written; its kind is the construct's id."""
    content = dict(document)
    made = ApiObject(
        scope,
        content["kind"],
        api_version=content.pop("apiVersion"),
        kind=content.pop("kind"),
        metadata=ApiObjectMetadata(**content.pop("metadata")),
    )
    for field, value in content.items():
        made.add_json_patch(JsonPatch.add(f"/{field}", value))
