"""docs/ describes cluster.yaml and job.yaml as the settings do.

Editors complete and check both files with the JSON Schemas; cluster-settings.md is for people.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from k8s_charts.spec import TrainingJob
from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_settings.model import Settings

PROJECT = Path(__file__).parents[2]
HEAD = """# Settings of cluster.yaml

This page is for people who write a cluster.yaml. It lists every setting with its default. A setting
without a value is unset; `<group>` is a name of your choice. `UPDATE_GOLDEN=1 pytest tests/charts`
writes this page.

"""


def texts() -> dict[str, str]:
    """Returns the text of each generated file of docs/ by its name."""
    specs: dict[str, type[Settings]] = {
        "cluster.schema.json": ClusterSpec,
        "job.schema.json": TrainingJob,
    }
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schemas = {name: {**head, **spec.model_json_schema()} for name, spec in specs.items()}
    files = {
        name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for name, schema in schemas.items()
    }
    cluster = schemas["cluster.schema.json"]
    lines = "\n".join(_lines(cluster, cluster["$defs"], ""))
    return {**files, "cluster-settings.md": f"{HEAD}```yaml\n{lines}\n```\n"}


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
    """Returns the group of settings that a setting holds, and the name that stands between them, if
    any.
    """
    for choice in (field, *field.get("anyOf", ())):
        if "$ref" in choice:
            return groups[choice["$ref"].rpartition("/")[2]], ""
    for inner in field.get("patternProperties", {}).values():
        if "$ref" in inner:
            return groups[inner["$ref"].rpartition("/")[2]], "<group>"
    return None, ""


@pytest.mark.parametrize("name", ["cluster.schema.json", "cluster-settings.md", "job.schema.json"])
def test_each_file_says_what_the_settings_say(name: str) -> None:
    written = PROJECT / "docs" / name
    if os.environ.get("UPDATE_GOLDEN"):
        written.write_text(texts()[name], encoding="utf-8")
    assert written.read_text(encoding="utf-8") == texts()[name], (
        "UPDATE_GOLDEN=1 pytest tests/charts writes it"
    )


def test_every_job_file_passes() -> None:
    schema = json.loads(texts()["job.schema.json"])
    jsonschema.Draft202012Validator.check_schema(schema)
    files = [
        PROJECT / "job.yaml",
        *(PROJECT / "examples").rglob("job.yaml"),
        *(PROJECT / "examples/paddlejob").glob("*.yaml"),
    ]
    for path in [*files, *(PROJECT / "tests/charts/jobs").glob("*.yaml")]:
        jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(path.read_text()))
