"""The change matrix: each setting of cluster.yaml, changed once on a deployed cluster, is announced
by `paddle-aws diff`, refused, or harmless. docs/changes.md says which.

`UPDATE_GOLDEN=1 pytest tests/emulator/test_change_matrix.py` rewrites it; read the diff.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from paddle_aws.operations.account import aws, cluster_account
from paddle_aws.operations.account.aws import list_all
from paddle_aws.operations.account.cluster_account import ClusterAccount
from paddle_aws.operations.commands import diff
from paddle_aws.operations.main import app
from paddle_aws.rehearsal.cloud import Cloud
from paddle_aws.stacks.cluster_spec import ClusterSpec

from ..aws.built import PROJECT, Built
from .conftest import PARTS, settled

pytestmark = pytest.mark.slow

PAGE = PROJECT / "docs" / "changes.md"
CHANGES = yaml.safe_load(Path(__file__).with_name("changes.yaml").read_text())
KINDS = {kind: CHANGES[kind] for kind in ("eks", "self-managed")}
NOT_CHANGED = CHANGES["not changed"]


def paths(group: Mapping[str, Any], groups: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields the schema's settings; of a group that may be unset only itself, unless its settings
    have rows.
    """
    for name, field in group["properties"].items():
        path = prefix + name
        inner = [choice for choice in (field, *field.get("anyOf", ())) if "$ref" in choice]
        below = [
            choice for choice in field.get("patternProperties", {}).values() if "$ref" in choice
        ]
        if not inner + below or "anyOf" in field:
            yield path
        if "anyOf" in field and not any(row.startswith(f"{path}.") for row in ROWS):
            continue
        for choice in inner + below:
            between = ".<group>." if below else "."
            yield from paths(groups[choice["$ref"].rpartition("/")[2]], groups, path + between)


ROWS = {row for kind in KINDS.values() for row in kind["rows"]}


def test_every_setting_has_a_row() -> None:
    schema = json.loads((PROJECT / "docs" / "cluster.schema.json").read_text())
    assert set(paths(schema, schema["$defs"])) == ROWS | set(NOT_CHANGED)


def changed(settings: dict[str, Any], path: str, value: Any) -> None:
    """Sets a setting by its path; None takes it away."""
    *groups, name = path.replace("<group>", "workers").split(".")
    for group in groups:
        settings = settings.setdefault(group, {})
    if value is None:
        settings.pop(name, None)
    else:
        settings[name] = value


def stack_bodies(spec: ClusterSpec) -> dict[str, str]:
    """Returns the templates by stack name, in the order of their deploy."""
    return {stack.stack_name: json.dumps(stack.template) for stack in Built(spec).assembly.stacks}


def deploy(cloud: Cloud, bodies: Mapping[str, str], *qualifiers: str) -> None:
    """Makes the stacks as cdk does, but for its files: no template has one that matters here."""
    for qualifier in qualifiers:
        version = f"/cdk-bootstrap/{qualifier}/version"
        cloud.client("ssm").put_parameter(Name=version, Value="30", Type="String")
    api = cloud.client("cloudformation")
    for name, body in bodies.items():
        api.create_stack(StackName=name, TemplateBody=body, Capabilities=["CAPABILITY_NAMED_IAM"])
        assert settled(api, name)["StackStatus"] == "CREATE_COMPLETE", name


SOME = {"owner", "network.cidr", "file_system.throughput", "file_system.posix_id", "budget"}
"""A row for each kind of outcome; all others are long."""


@pytest.fixture(
    scope="module", params=[SOME, pytest.param(ROWS, marks=pytest.mark.long)], ids=["some", "all"]
)
def lines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The table's lines by setting."""
    lines = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(PROJECT)
        for kind in KINDS.values():
            rows = {row: change for row, change in kind["rows"].items() if row in request.param}
            if not rows:
                continue
            folder = tmp_path_factory.mktemp("changes")
            parts = [*PARTS, PARTS[0].with_name("replacements.py")]
            with Cloud(project=PROJECT, state=folder / "state", parts=parts) as cloud:
                for name, value in cloud.environment.items():
                    patch.setenv(name, value)
                # A client takes longer to make than to ask.
                patch.setattr(cluster_account, "client", functools.cache(aws.client))
                spec = ClusterSpec.model_validate(kind["base"])
                bodies = stack_bodies(spec)
                deploy(cloud, bodies, spec.qualifier, "corp")
                for row, change in rows.items():
                    lines[row] = line(row, kind["base"], change, bodies, folder, patch)
    return lines


def line(
    row: str,
    base: dict[str, Any],
    change: Any,
    deployed: Mapping[str, str],
    folder: Path,
    patch: pytest.MonkeyPatch,
) -> str:
    """Returns one line of the table: what the real `diff` says of the change."""
    settings = copy.deepcopy(base)
    value = change
    if isinstance(change, dict):
        value = change["to"]
        for path, more in change.get("with", {}).items():
            changed(settings, path, more)
    changed(settings, row, value)
    config = folder / "cluster.yaml"
    config.write_text(yaml.safe_dump(settings))
    stacks: list[str] = []

    def prepare(config: Path, account: ClusterAccount, names: list[str]) -> None:
        bodies = stack_bodies(ClusterSpec.load(config))
        api = account.client("cloudformation")
        exports = {export["Name"] for export in list_all(api, "list_exports", "Exports[]")}
        for name in names:
            if name in bodies and json.loads(bodies[name]) != json.loads(deployed[name]):
                stacks.append(name)
                # An export that the stack before has yet to make is only a value that changes.
                body = re.sub(
                    r'\{"Fn::ImportValue": "([^"]+)"\}',
                    lambda match: match[0] if match[1] in exports else '"new"',
                    bodies[name],
                )
                api.create_change_set(
                    StackName=name,
                    ChangeSetName=diff.NAME,
                    TemplateBody=body,
                    Capabilities=["CAPABILITY_NAMED_IAM"],
                )
        stacks.extend(bodies.keys() - deployed.keys())

    # As cdk prepares them, but without a process for each row.
    patch.setattr(diff, "_prepare", prepare)
    done = CliRunner().invoke(app, ["diff", str(config), "--json"])
    assert done.exit_code in (0, 1, 2) and not isinstance(done.exception, Exception), (row, done)
    losses = json.loads(done.stdout) if done.stdout else []
    outcome, why = verdict(done.exit_code, losses, done.stderr, stacks)
    old = value_of(ClusterSpec.model_validate(base).model_dump(mode="json"), row)
    new = value_of(settings, row)
    return f"| `{row}` | {old} → {new} | {outcome} | {why} |"


def value_of(settings: Any, path: str) -> str:
    """Returns a setting as YAML on one line."""
    for name in path.replace("<group>", "workers").split("."):
        settings = (settings or {}).get(name)
    text = (
        yaml.safe_dump(settings, default_flow_style=True, width=1000).replace("\n...", "").strip()
    )
    if len(text) > 300:
        text = f"{text[1:28]} ..."
    return "unset" if settings is None else f"`{text}`"


def verdict(
    code: int, losses: list[dict[str, str]], stderr: str, stacks: list[str]
) -> tuple[str, str]:
    """Returns whether a change is refused, announced or harmless, and what `diff` says."""
    lines = [line.removeprefix("cluster.yaml: ") for line in stderr.splitlines()]
    if code == 2:
        return "refused", lines[-1]
    if refused := [loss["what"] for loss in losses if loss["change"] == diff.REFUSED]:
        return "refused", "; ".join(dict.fromkeys(refused))
    losses_named = [
        f"{loss['type'].removeprefix('AWS::')} {loss['change']}"
        + (f": {loss['what']}" if loss["what"] else "")
        for loss in losses
    ]
    if losses_named:
        return "announced", "; ".join(dict.fromkeys(losses_named))
    if any("is deployed in" in line or "the old one stays" in line for line in lines):
        return "announced", lines[-1]
    parts = ", ".join(dict.fromkeys(stack.rpartition("-")[2] for stack in stacks))
    return "harmless", f"changes {parts} in place" if parts else "changes no stack"


HEAD = """# What a change does

This page is for people who change the cluster.yaml of a deployed cluster. Each row changes one
setting. `paddle-aws diff` refuses the change or announces what a deploy will do; or the change is
harmless. The settings from `cluster.pod_cidr` on are those of a self-managed cluster.

* *New machines*: the group stays, and replaces its machines one after another.
* *Perhaps*: CloudFormation decides only during the deploy.
* *Removed*, and no more words: the part holds no data, and the new setting does not need it.

`UPDATE_GOLDEN=1 pytest tests/emulator/test_change_matrix.py` writes this page: it deploys to the
emulator and runs `diff` for each row. AWS's resource schemas say what is replaced. The emulator has
no FSx, so [the settings of Lustre](file-system.md#fsx-for-lustre) are missing.

| setting | from → to | a deploy is | why |
|---|---|---|---|
"""


def test_the_page_says_what_happens(lines: dict[str, str]) -> None:
    if lines.keys() == ROWS:
        page = HEAD + "".join(f"{line}\n" for line in lines.values())
        if os.environ.get("UPDATE_GOLDEN"):
            PAGE.write_text(page, encoding="utf-8")
        assert PAGE.read_text(encoding="utf-8") == page, "UPDATE_GOLDEN=1 writes it"
    said = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in said if line.startswith(tuple(f"| `{row}` " for row in lines))] == [
        *lines.values()
    ]
