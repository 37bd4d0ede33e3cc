"""What settings become in the templates: the rows of templates.yaml, and what a query cannot
express.
"""

import json
import os
import re
import runpy
from pathlib import Path
from typing import Any

import jmespath
import pytest

from constructs_lib.network.endpoint_tunnel import DISK_GIB
from paddle_aws.operations.account.machines import TUNNEL_DISK
from paddle_aws.stacks.cluster_spec import TUNNEL_TYPE

from .built import PROJECT, by_type
from .conftest import FILES, TABLE

CASES = [
    pytest.param(name, row["ask"], row.get(name, row.get("each")), id=f"{row['says']} ({name})")
    for row in TABLE["rows"]
    for name in (FILES if "each" in row else [name for name in row if name not in ("says", "ask")])
]


def laid_out(assembly: Any, prefix: str) -> dict[str, Any]:
    """Returns the resources by stack and type, with those of all stacks under `all`."""
    by_stack: dict[str, Any] = {"all": {}, "outputs": {}, "after": {}}
    for stack in assembly.stacks:
        part = stack.stack_name.removeprefix(prefix)
        by_stack["after"][part] = [
            other.id for other in stack.dependencies if not other.id.endswith("assets")
        ]
        if by_kind := by_type(stack.template.get("Resources", {})):
            by_stack[part] = by_kind
        for kind, resources in by_kind.items():
            by_stack["all"].setdefault(kind, []).extend(resources)
        outputs = {
            name: output["Value"] for name, output in stack.template.get("Outputs", {}).items()
        }
        by_stack["outputs"][part] = {
            name: value for name, value in outputs.items() if not name.startswith("Exports")
        }
    return by_stack


@pytest.mark.parametrize(("name", "ask", "answer"), CASES)
def test_settings_come_to(name: str, ask: str, answer: Any, variant: Any) -> None:
    if name == "stranger":
        asked = laid_out(
            runpy.run_path(str(PROJECT / "examples" / "stranger_stack" / "app.py"))[
                "app"
            ]().synth(),
            "",
        )
    else:
        built = variant(name)
        asked = {
            **laid_out(built.assembly, f"{built.spec.name}-"),
            "spec": built.spec.model_dump(mode="json"),
        }
    assert jmespath.search(ask, asked) == answer


def test_the_cost_of_a_tunnel_is_that_of_its_machine() -> None:
    assert (TUNNEL_TYPE, TUNNEL_DISK) == ("t4g.nano", DISK_GIB)


def test_plain_nfs_is_said_in_the_synth(variant: Any) -> None:
    metadata = (
        Path(variant("self-managed").assembly.directory) / "self-storage.metadata.json"
    ).read_text()
    assert (
        "require_tls is false: plain NFS is taken, and data crosses the VPC in the clear"
        in metadata
    )


@pytest.mark.parametrize(
    ("name", "stack"),
    [
        *(("shipped", stack) for stack in ("access", "network", "storage", "cluster", "nodes")),
        *(("self-managed-cluster", stack) for stack in ("cluster", "nodes")),
        ("self-managed", "nodes"),
        ("lustre", "storage"),
    ],
)
def test_the_templates_are_as_reviewed(variant: Any, name: str, stack: str) -> None:
    """The diff shows what a code change changes on AWS, except for the scripts' checksums, which
    have their own tests.

    Update them with `UPDATE_SNAPSHOTS=1 pytest tests/aws/test_templates.py`, and read the diff
    before you commit it.
    """
    built = variant(name)
    whole = json.dumps(built.templates[stack], indent=1, sort_keys=True) + "\n"
    text = re.sub(r"[0-9a-f]{64}(\.\w+)?", "<sha256>", whole) if name != "shipped" else whole
    file = Path(__file__).with_name("snapshots") / f"{built.spec.name}-{stack}.json"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.write_text(text)
    assert json.loads(file.read_text()) == json.loads(text), (
        "update with UPDATE_SNAPSHOTS=1 if this is what you want"
    )
