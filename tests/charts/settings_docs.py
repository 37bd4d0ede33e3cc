"""What docs/ says of the settings of cluster.yaml and job.yaml, made from these.

The JSON Schemas are for editors, which complete and check both files by them; cluster-settings.md is for people.
"""

import json
from collections.abc import Iterator
from typing import Any

from k8s_charts.spec import TrainingJob
from settings.model import Settings
from stacks.cluster_spec import ClusterSpec

HEAD = """# Settings of cluster.yaml

Every setting with its default, written by `UPDATE_GOLDEN=1 pytest tests/charts`. `<group>` is a name of your
choice; a setting without a value is unset.

"""


def texts() -> dict[str, str]:
    """Each file of docs/ by its name."""
    specs: dict[str, type[Settings]] = {"cluster.schema.json": ClusterSpec, "job.schema.json": TrainingJob}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schemas = {name: {**head, **spec.model_json_schema()} for name, spec in specs.items()}
    found = {name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for name, schema in schemas.items()}
    cluster = schemas["cluster.schema.json"]
    lines = "\n".join(_lines(cluster, cluster["$defs"], ""))
    return {**found, "cluster-settings.md": f"{HEAD}```yaml\n{lines}\n```\n"}


def _lines(group: dict[str, Any], groups: dict[str, Any], indent: str) -> Iterator[str]:
    for name, field in group["properties"].items():
        inside, below = _inside(field, groups)
        meaning = " ".join(field["description"].split())
        default = field.get("default")
        value = f" {json.dumps(default)}" if default is not None and inside is None else ""
        meaning = "Required. " * (name in group.get("required", ())) + meaning
        always = inside is not None and not below and "anyOf" not in field
        yield f"{indent}{name}:{value}" + ("" if always else f"  # {meaning}")
        if below:
            yield f"{indent}  {below}:"
        if inside is not None:
            yield from _lines(inside, groups, indent + ("    " if below else "  "))


def _inside(field: dict[str, Any], groups: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The group of settings that a setting holds, and the name that stands between them."""
    for choice in (field, *field.get("anyOf", ())):
        if "$ref" in choice:
            return groups[choice["$ref"].rpartition("/")[2]], ""
    for inner in field.get("patternProperties", {}).values():
        if "$ref" in inner:
            return groups[inner["$ref"].rpartition("/")[2]], "<group>"
    return None, ""
