"""Objects by their documents: those of this package's YAML files, and those with fields that cdk8s has no type for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import yaml
from cdk8s import ApiObject, ApiObjectMetadata, JsonPatch
from constructs import Construct


def written(file: str, **values: object) -> list[dict[str, Any]]:
    """The documents of a YAML file beside this one, with its `$name` filled in."""
    text = Path(__file__).with_name(file).read_text()
    return list(yaml.safe_load_all(Template(text).substitute(values)))


def add(scope: Construct, document: Mapping[str, Any]) -> None:
    """Adds a whole manifest as it is written; its kind and its place are the construct's id."""
    content = dict(document)
    made = ApiObject(
        scope,
        f"{content['kind']}-{len(scope.node.children)}",
        api_version=content.pop("apiVersion"),
        kind=content.pop("kind"),
        metadata=ApiObjectMetadata(**content.pop("metadata")),
    )
    for field, value in content.items():
        made.add_json_patch(JsonPatch.add(f"/{field}", value))
