"""Objects with fields that cdk8s has no type for: custom resources and their definitions, and a Job of a newer Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdk8s import ApiObject, ApiObjectMetadata, JsonPatch
from constructs import Construct


def add(
    scope: Construct,
    id: str,
    *,
    api_version: str,
    kind: str,
    name: str,
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
    spec: Mapping[str, Any],
) -> ApiObject:
    """Adds the object. cdk8s knows no type for it, so its spec is given as it is to be written."""
    metadata = ApiObjectMetadata(name=name, namespace=namespace, labels=dict(labels or {}))
    made = ApiObject(scope, id, api_version=api_version, kind=kind, metadata=metadata)
    made.add_json_patch(JsonPatch.add("/spec", spec))
    return made


def add_document(scope: Construct, document: Mapping[str, Any]) -> None:
    """Adds a whole manifest as it is written."""
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
