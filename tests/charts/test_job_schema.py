"""docs/ describes cluster.yaml, job.yaml, recipes and commands as the program does.

Editors complete and check both files with the JSON Schemas; docs/reference/ is for people.
"""

import functools
import json
import os
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from k8s_charts.spec import TrainingJob
from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_settings.model import Settings

from .reference_pages import command_table, pages

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"
COMMANDS = re.compile(r"(?<=<!-- generated: tests/charts -->\n).*?(?=<!-- end -->)", re.S)

NAMES = (
    "cluster.schema.json",
    "commands.md",
    "job.schema.json",
    *(f"reference/{name}.md" for name in ("commands", "constructs")),
    *(f"reference/{name}-settings.md" for name in ("cluster", "job", "recipe")),
)


@functools.cache
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
    commands = (DOCS / "commands.md").read_text(encoding="utf-8")
    files["commands.md"] = COMMANDS.sub(lambda _: f"{command_table()}\n", commands)
    return files | {f"reference/{name}": text for name, text in pages().items()}


@pytest.mark.parametrize("name", NAMES)
def test_each_file_says_what_the_settings_say(name: str) -> None:
    written = DOCS / name
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
