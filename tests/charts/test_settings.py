"""A setting that nothing reads cannot be added: each of job.yaml changes a document of a job, each
of cluster.yaml is a row of tests/emulator/changes.yaml, or it names the test that reaches it; each
condition refuses a value where it has no effect.

`make settings-table` prints each setting, when it counts, and what reaches it.
"""

import copy
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
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
from paddle_settings.model import Settings

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


def check_test(test: str) -> None:
    """Fails unless the named test, or file of tests, exists."""
    file, _, name = test.partition("::")
    assert f"def {name}" in (HERE.parents[1] / file).read_text()


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
        check_test(row["test"])
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
    files = (_with({**BASE, **base}, row.get("at", name), row["value"]) for base in BASES)
    check_refusals(setting, (partial(TrainingJob.parse, file, HERE / "jobs") for file in files))


def check_refusals(setting: Setting, read: Iterable[Callable[[], object]]) -> None:
    """Fails unless each condition of the setting's own refuses it in one of the files."""
    lines = []
    for read_file in read:
        try:
            read_file()
        except SettingError as error:
            lines += str(error).splitlines()
    path = setting.path.replace("*", "workers")
    for condition in conditions(setting.group, setting.name):
        says = f": it counts only {condition.only}; leave it out"
        assert any(line.startswith(f"{path} is ") and says in line for line in lines), lines


CHANGES = yaml.safe_load((HERE.parents[1] / "tests/emulator/changes.yaml").read_text())
CHANGED: dict[str, Any] = CHANGES["eks"]["rows"] | CHANGES["self-managed"]["rows"]
CHANGED |= CHANGES["not changed"] | CHANGES["inside"]
CLUSTER = list(settings(ClusterSpec))
_ZONES = {"us-west-2a": "subnet-00000001", "us-west-2b": "subnet-00000002"}
CLUSTERS: list[dict[str, Any]] = [
    {},
    {"compute": "auto"},
    {"cluster": {"kind": "self-managed"}},
    {"deployer": "restricted"},
    {"network": {"existing": {"id": "vpc-01234567", "cidr": "10.9.0.0/16",
                              "private_subnets": _ZONES}}},
    {"zone": {"existing": {"id": "Z1", "name": "theirs"}}},
    {"bucket": {"existing_name": "theirs"}},
    {"images": {"existing": True}},
    {"file_system": {"kind": "lustre"}},
    {"file_system": {"existing": {"id": "fs-01234567"}}},
    {"cluster": {"existing": {"name": "c", "endpoint": "https://c", "certificate_authority": "LS0=",
                              "security_group": "sg-01234567"}}},
    {"cluster": {"public_access_from": ["203.0.113.7/32"]}},
    {"nodes": {"workers": {"kind": "self-managed"}}},
]  # fmt: skip
"""Clusters in which some settings do not count."""


def find_change(path: str) -> dict[str, Any]:
    """Returns the value of cluster.yaml's setting in the change matrix, alone or in its group, as
    `to`, and its test, if that is another one; empty: it has none.
    """
    row, inside = path.replace("*", "<group>"), []
    while row:
        if row in CHANGED:
            change = CHANGED[row]
            change = change if isinstance(change, dict) and "to" in change else {"to": change}
            value = change["to"]
            for name in reversed(inside):
                value = value[0] if isinstance(value, list) else value
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None or change.get("without effect"):
                return {**change, "to": value}
        row, _, name = row.rpartition(".")
        inside.append(name)
        if row.endswith("[]"):
            row = row.removesuffix("[]")
    return {}


def find_reason(path: str) -> str:
    """Returns why nothing shows that this setting of cluster.yaml is reached; empty: something
    does.
    """
    change, page = find_change(path), (HERE.parents[1] / "docs/changes.md").read_text("utf-8")
    if not change:
        return f"tests/emulator/changes.yaml has no row for {path}"
    if "test" in change:
        check_test(change["test"])
        return ""
    row = next((line for line in page.splitlines() if line.startswith(f"| `{path}` |")), "")
    return f"docs/changes.md: {row}" if "changes no stack" in row else ""


@pytest.mark.parametrize(
    "setting", [s for s in CLUSTER if not s.is_group], ids=lambda setting: setting.path
)
def test_a_setting_of_the_cluster_is_reached(setting: Setting) -> None:
    """In the change matrix, a template changes or `diff` says why not."""
    assert not find_reason(setting.path)


_OWN = CHANGES["self-managed"]["base"]
_PUBLIC = {"id": "Z0123456789ABCDEFGHIJ", "host": "paddle.example.com"}
SYNTHESIZED: list[dict[str, Any]] = [
    *(cluster for cluster in CLUSTERS if cluster != {"cluster": {"kind": "self-managed"}}),
    CHANGES["eks"]["base"],
    {"file_system": {"existing": {"id": "fs-01234567", "security_group": "sg-01234567"}}},
    {"zone": {"public": _PUBLIC}, "cluster": {"public_access_from": ["203.0.113.7/32"]},
     "proxy": CHANGES["eks"]["rows"]["proxy"]["to"], "jobs": {"queue": "own", "images": ["a:1"]}},
    {"nodes": {"workers": {"taints": [{"key": "batch", "value": "only"}],
                           "ssh": {"key_pair": "mine", "allowed_from": ["203.0.113.7/32"]}},
               "more": {}}},
    {**_OWN, "cluster": {**_OWN["cluster"], "snapshots": {"schedule": "0 0 * * *"}}},
]  # fmt: skip
"""Clusters in which each setting counts once."""


UNREAD = {"extends", "locked", "jobs.queue", "jobs.images"}
"""What is read before there are stacks, or by `setup` alone."""


@pytest.mark.slow
@pytest.mark.long
def test_each_setting_of_the_cluster_is_read_by_the_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the class that has it: another setting of this name does not stand in for it."""
    from tests.aws.built import Built

    read: set[tuple[type, str]] = set()
    look, dump = Settings.__getattribute__, Settings.model_dump

    def look_and_note(group: Settings, name: str) -> Any:
        read.update((kind, name) for kind in type(group).__mro__)
        return look(group, name)

    def dump_and_note(group: Settings, **more: Any) -> dict[str, Any]:
        names = more.get("include") or type(group).model_fields
        read.update((kind, name) for kind in type(group).__mro__ for name in names)
        return dump(group, **more)

    specs = [ClusterSpec.parse({"retain": False, **cluster}) for cluster in SYNTHESIZED]
    monkeypatch.chdir(HERE.parents[1])
    monkeypatch.setattr(Settings, "__getattribute__", look_and_note)
    monkeypatch.setattr(Settings, "model_dump", dump_and_note)
    for spec in specs:
        Built(spec)
    unread = {s.path for s in CLUSTER if not s.is_group and (s.group, s.name) not in read}
    assert unread == UNREAD


@pytest.mark.parametrize(
    "setting",
    [setting for setting in CLUSTER if conditions(setting.group, setting.name)],
    ids=lambda setting: setting.path,
)
def test_a_setting_of_the_cluster_that_does_not_count_is_refused(setting: Setting) -> None:
    inside = (s.path for s in CLUSTER if f"{s.path}.".startswith(f"{setting.path}."))
    path, change = next((path, found) for path in inside if (found := find_change(path)))
    path = path.replace("*", "workers")
    beside = {path: change.get("without effect", change["to"])}
    if path.startswith(("nodes.", "file_system.existing.")):
        beside |= {"nodes.workers.availability_zones": ["us-west-2a"], **change.get("with", {})}
    files = []
    for base in CLUSTERS:
        files.append({"retain": False, **base})
        for at, value in beside.items():
            files[-1] = _with(files[-1], at, value)
    check_refusals(setting, (partial(ClusterSpec.parse, file) for file in files))


def main() -> None:
    """Prints the table."""
    for file, shown in (("job.yaml", SETTINGS), ("cluster.yaml", CLUSTER)):
        print(file)
        for setting in shown:
            if setting.is_group:
                continue
            if file == "job.yaml":
                row, place = ROWS.get(setting.path), "a document"
            else:
                row = {} if find_reason(setting.path) else find_change(setting.path)
                place = "tests/emulator/changes.yaml"
            reached = row.get("test") or place if row else "0"
            reached += " and a refusal" if setting.conditions else ""
            counts = "; ".join(condition.only for condition in setting.conditions) or "always"
            print(f"  {setting.path:48} {counts:70} {reached}")


if __name__ == "__main__":
    main()
