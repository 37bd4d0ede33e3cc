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


@pytest.mark.parametrize("stack", ["access", "network", "storage", "cluster", "nodes"])
def test_the_shipped_templates_are_as_reviewed(shipped: Any, stack: str) -> None:
    text = json.dumps(shipped.templates[stack], indent=1, sort_keys=True) + "\n"
    file = SNAPSHOTS / f"paddle-{stack}.json"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.write_text(text)
    assert json.loads(file.read_text()) == json.loads(text), "update with UPDATE_SNAPSHOTS=1 if this is what you want"


@pytest.mark.parametrize("stack", ["cluster", "nodes"])
def test_the_self_managed_templates_are_as_reviewed(variant: Any, stack: str) -> None:
    """But for the scripts' checksums, which their own tests answer for."""
    whole = json.dumps(variant("self-managed-cluster").templates[stack], indent=1, sort_keys=True)
    text = re.sub(r"[0-9a-f]{64}(\.\w+)?", "<sha256>", whole) + "\n"
    file = SNAPSHOTS / f"tutorial-{stack}.json"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.write_text(text)
    assert json.loads(file.read_text()) == json.loads(text), "update with UPDATE_SNAPSHOTS=1 if this is what you want"
