"""What docs/ says of the settings of cluster.yaml and job.yaml: `python -m operations.schemas` writes it from these.

The JSON Schemas are for editors, which complete and check both files by them; cluster-settings.md is for people.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from k8s_charts.spec import TrainingJob
from settings.model import Settings
from stacks.cluster_spec import ClusterSpec

DOCS = Path(__file__).parents[1] / "docs"
HEAD = """# Settings of cluster.yaml

Written by `python -m operations.schemas` from the settings themselves. `<group>` stands for a name of your choice.

| setting | default | meaning |
|---|---|---|
"""


def texts() -> dict[str, str]:
    """Each file of docs/ by its name."""
    specs: dict[str, type[Settings]] = {"cluster.schema.json": ClusterSpec, "job.schema.json": TrainingJob}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schemas = {name: {**head, **spec.model_json_schema()} for name, spec in specs.items()}
    found = {name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for name, schema in schemas.items()}
    cluster = schemas["cluster.schema.json"]
    rows = (f"| `{path}` | {default} | {meaning} |" for path, default, meaning in _rows(cluster, cluster["$defs"], ""))
    return {**found, "cluster-settings.md": HEAD + "\n".join(rows) + "\n"}


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


if __name__ == "__main__":
    for name, text in texts().items():
        (DOCS / name).write_text(text, encoding="utf-8")
