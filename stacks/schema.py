"""Writes what docs/ says of cluster.yaml's settings, from the settings themselves: `python -m stacks.schema`.

docs/cluster.schema.json is for editors, which complete and check cluster.yaml by it; docs/cluster-settings.md is for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stacks.cluster_spec import ClusterSpec

DOCS = Path(__file__).parents[1] / "docs"
HEAD = """# Settings of cluster.yaml

Written by `python -m stacks.schema` from the settings themselves. `<group>` stands for a name of your choice.

| setting | default | meaning |
|---|---|---|
"""


def json_schema() -> str:
    """The JSON Schema of cluster.yaml."""
    return json.dumps(ClusterSpec.model_json_schema(), indent=2) + "\n"


def reference() -> str:
    """Every setting in a table."""
    schema = ClusterSpec.model_json_schema()
    rows = (f"| `{path}` | {default} | {meaning} |" for path, default, meaning in _rows(schema, schema["$defs"], ""))
    return HEAD + "\n".join(rows) + "\n"


def _rows(group: dict[str, Any], groups: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    for name, field in group["properties"].items():
        here = f"{path}{name}"
        inside, below = _inside(field, groups)
        if inside is None or below.endswith("<group>.") or "anyOf" in field:
            default = "required" if name in group.get("required", ()) else _default(field)
            meaning = " ".join(field["description"].split()).replace("|", "\\|")
            yield here, default, meaning
        if inside is not None:
            yield from _rows(inside, groups, f"{here}.{below}")


def _inside(field: dict[str, Any], groups: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The group of settings that a setting holds, and what stands between them in a path."""
    for choice in (field, *field.get("anyOf", ())):
        if "$ref" in choice:
            return groups[choice["$ref"].rpartition("/")[2]], ""
    for inner in field.get("patternProperties", {}).values():
        if "$ref" in inner:
            return groups[inner["$ref"].rpartition("/")[2]], "<group>."
    return None, ""


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    if value is None:
        return "unset"
    if isinstance(value, dict) and value:
        return "one group, `workers`"
    return f"`{json.dumps(value)}`"


def main() -> None:
    """Writes both files."""
    (DOCS / "cluster.schema.json").write_text(json_schema(), encoding="utf-8")
    (DOCS / "cluster-settings.md").write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
