"""Which properties a change replaces a resource for, by AWS's own resource schemas (cfn-lint's
copies), where MiniStack does not know or says "perhaps" of all.

Promises: only what a change set says changes; updates are carried out as before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ministack.services.cloudformation import stacks


def apply() -> None:
    """Puts the schemas in the place of MiniStack's tables."""
    [data] = Path(os.environ["VIRTUAL_ENV"]).glob("lib/python*/site-packages/cfnlint/data/schemas")
    files = json.loads((data / "providers" / "us-east-1.json").read_text())
    schemas: dict[str, dict[str, Any]] = {}

    def recreation(kind: str, name: str) -> str:
        if kind in files and kind not in schemas:
            schemas[kind] = json.loads((data / "resources" / f"{files[kind]}.json").read_text())
        schema = schemas.get(kind, {})
        if name in _names(schema, "createOnlyProperties", 1):
            return "Always"
        perhaps = {
            *_names(schema, "conditionalCreateOnlyProperties", 1),
            # A part of the property is replaced for.
            *_names(schema, "createOnlyProperties", 2),
        }
        return "Conditionally" if name in perhaps else "Never"

    stacks._property_recreation = recreation


def _names(schema: dict[str, Any], part: str, depth: int) -> Iterator[str]:
    for path in schema.get(part, ()):
        name, *rest = path.removeprefix("/properties/").split("/")
        if (len(rest) == 0) == (depth == 1):
            yield name
