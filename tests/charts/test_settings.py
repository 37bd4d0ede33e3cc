"""A setting that nothing reads cannot be added: each changes a document of a job, or names the test
that reaches it; each condition refuses a value where it has no effect.

`make settings-table` prints each setting, when it counts, and what reaches it.
"""

import ast
import copy
import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob
from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_settings.conditions import conditions
from paddle_settings.errors import SettingError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from settings_table import Setting, settings  # noqa: E402

ROWS: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "settings.yaml").read_text())
ALL = list(settings(TrainingJob))
SETTINGS = [setting for setting in ALL if not setting.is_group]
BASE = {
    "name": "words",
    "trainers": 2,
    "data": {"source": "s3://corpus/words"},
    "program": {"folder": "quick_start"},
}
BASES: list[dict[str, Any]] = [
    {},
    {"command": "a", "data": {"source": "s3://a/b", "shared": True}},
    {"controller": "paddlejob", "image": "demo:1", "parameter_servers": 1},
    {"data": {"prepared": True}, "program": {"from": "volume"}},
    {"limits": {"keep_finished": "never"}},
    {"controller": "paddlejob", "image": "demo:1", "parameter_servers": 1, "namespace": "own",
     "paddlejob": {"intranet": "Host", "install_operator": False}},
    {"volume": {"kind": "claim", "claim": "x"}},
    {"data": {"source": "s3://a/b", "format": "files"}},
    {"program": {"from": "folder", "path": "own_program"}, "command": "a"},
    {"program": {"from": "volume"}},
]  # fmt: skip
"""Jobs in which some settings do not count."""


def _with(base: Mapping[str, Any], path: str, value: object) -> dict[str, Any]:
    """Returns the settings with one more."""
    result = copy.deepcopy(dict(base))
    *above, last = path.split(".")
    group = result
    for name in above:
        group = group.setdefault(name, {})
    group[last] = value
    return result


@cache
def _documents(settings: str) -> str:
    job = TrainingJob.parse(json.loads(settings), HERE / "jobs")
    image = job.image or f"pushed:{job.image_variant}"
    return json.dumps(documents(job, ClusterOutputs.placeholder(), image), default=str)


def _render(settings: Mapping[str, Any]) -> str:
    return _documents(json.dumps(settings))


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.path)
def test_a_setting_changes_the_jobs_documents(setting: Setting) -> None:
    assert setting.path in ROWS, f"tests/charts/settings.yaml has no row for {setting.path}"
    row = ROWS[setting.path]
    if "test" in row:
        file, _, name = row["test"].partition("::")
        assert f"def {name}" in (HERE.parents[1] / file).read_text()
        return
    path, base = row.get("at", setting.path), {**BASE, **row.get("with", {})}
    changed = _with(base, path, row["value"])
    before = {**BASE, **row["than_with"]} if "than_with" in row else base
    without = _with(before, path, row["than"]) if "than" in row else before
    assert _render(changed) != _render(without)


def test_no_row_is_of_a_setting_that_is_gone() -> None:
    assert ROWS.keys() == {setting.path for setting in SETTINGS}


@pytest.mark.parametrize(
    "setting",
    [setting for setting in ALL if conditions(setting.group, setting.name)],
    ids=lambda setting: setting.path,
)
def test_a_setting_that_does_not_count_is_refused(setting: Setting) -> None:
    inside = (name for name in ROWS if name == setting.path or name.startswith(f"{setting.path}."))
    row = ROWS[name := next(inside)]
    path = row.get("at", name)
    lines = []
    for base in BASES:
        try:
            TrainingJob.parse(_with({**BASE, **base}, path, row["value"]), HERE / "jobs")
        except SettingError as error:
            lines += str(error).splitlines()
    own = [condition.only for condition in conditions(setting.group, setting.name)]
    for only in own:
        says = f": it counts only {only}; leave it out"
        assert any(line.startswith(f"{setting.path} is ") and says in line for line in lines), lines


def _names_read() -> set[str]:
    """Returns the attributes and arguments that the product's code reads."""
    rooms = ("stacks", "constructs_lib", "paddle_aws", "k8s_charts")
    files = (file for room in rooms for file in (HERE.parents[1] / room).rglob("*.py"))
    parts = (part for file in files for part in ast.walk(ast.parse(file.read_text("utf-8"))))
    return {
        part.attr if isinstance(part, ast.Attribute) else part.id
        for part in parts
        if isinstance(part, ast.Attribute | ast.Name) and isinstance(part.ctx, ast.Load)
    }


def test_each_setting_of_the_cluster_is_read() -> None:
    """By its name alone, as an attribute or an argument; tests/aws and tests/emulator look at the
    templates.
    """
    read = _names_read() | {"locked"}  # layers.py reads it before there is a ClusterSpec.
    assert not [s.path for s in settings(ClusterSpec) if s.name not in read]


def main() -> None:
    """Prints the table."""
    for setting in SETTINGS:
        row = ROWS.get(setting.path, {})
        reached = row.get("test") or ("a document" if row else "0")
        reached += " and a refusal" if setting.conditions else ""
        counts = "; ".join(condition.only for condition in setting.conditions) or "always"
        print(f"{setting.path:36} {counts:70} {reached}")


if __name__ == "__main__":
    main()
