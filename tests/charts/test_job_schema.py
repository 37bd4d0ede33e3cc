"""docs/ says of cluster.yaml and job.yaml what the settings say: editors check both files by the schemas."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from k8s_charts.spec import TrainingJob
from settings.errors import SettingError

from . import settings_docs

PROJECT = Path(__file__).parents[2]
MINIMAL = {"name": "x", "trainers": 1, "data": {"source": "a.tsv"}}


@pytest.mark.parametrize("name", ["cluster.schema.json", "cluster-settings.md", "job.schema.json"])
def test_each_file_says_what_the_settings_say(name: str) -> None:
    written = PROJECT / "docs" / name
    if os.environ.get("UPDATE_GOLDEN"):
        written.write_text(settings_docs.texts()[name], encoding="utf-8")
    assert written.read_text(encoding="utf-8") == settings_docs.texts()[name], "UPDATE_GOLDEN=1 pytest tests/charts writes it"


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    found = json.loads(settings_docs.texts()["job.schema.json"])
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


def test_every_job_file_passes(validator: jsonschema.Draft202012Validator) -> None:
    files = [PROJECT / "job.yaml", *(PROJECT / "examples").rglob("job*.yaml"), *(PROJECT / "examples/paddlejob").glob("*.yaml")]
    for path in [*files, *(PROJECT / "tests/charts/jobs").glob("*.yaml")]:
        validator.validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    "settings", [{"trainer": 3}, {"trainers": 0}, {"name": "Words"}, {"passes": "5"}, {"mode": "ring"}, {"environment": {"A": 1}}]
)
def test_what_a_job_may_not_say_an_editor_marks(validator: jsonschema.Draft202012Validator, settings: dict[str, Any]) -> None:
    assert not validator.is_valid({**MINIMAL, **settings})
    with pytest.raises(SettingError):
        TrainingJob.parse({**MINIMAL, **settings})
