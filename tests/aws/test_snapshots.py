"""One template snapshot a stack of the shipped cluster.yaml: what a change of the code changes on AWS is seen in its diff.

Update them with `UPDATE_SNAPSHOTS=1 pytest tests/aws/test_snapshots.py`, and read the diff before you commit it.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.mark.parametrize(
    ("name", "stack"),
    [
        *(("shipped", stack) for stack in ("access", "network", "storage", "cluster", "nodes")),
        *(("self-managed-cluster", stack) for stack in ("cluster", "nodes")),
    ],
)
def test_the_templates_are_as_reviewed(variant: Any, name: str, stack: str) -> None:
    """But for the scripts' checksums, which their own tests answer for."""
    built = variant(name)
    whole = json.dumps(built.templates[stack], indent=1, sort_keys=True) + "\n"
    text = re.sub(r"[0-9a-f]{64}(\.\w+)?", "<sha256>", whole) if name != "shipped" else whole
    file = SNAPSHOTS / f"{built.spec.name}-{stack}.json"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.write_text(text)
    assert json.loads(file.read_text()) == json.loads(text), "update with UPDATE_SNAPSHOTS=1 if this is what you want"
