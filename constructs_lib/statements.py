"""Reads IAM statements, and other AWS documents, from JSON files that hold them in AWS's own
format.
"""

from __future__ import annotations

import json
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aws_cdk import aws_iam as iam

OF_MACHINES = Path(__file__).with_name("machine_statements.json")
"""What the machines of a cluster may do."""


def fill(value: Any, values: dict[str, Any]) -> Any:
    """Returns `value` with each `$name` replaced by its value in `values`. IAM's own variables,
    such as ${aws:userid}, stay.
    """
    if isinstance(value, dict):
        # `Why` is for human readers.
        return {name: fill(inner, values) for name, inner in value.items() if name != "Why"}
    if isinstance(value, list):
        return [fill(item, values) for item in value]
    return (
        values[value[1:]]
        if value[:1] == "$" and value[1:] in values
        else Template(value).safe_substitute(values)
    )


def statements(file: Path, part: str, **values: Any) -> list[iam.PolicyStatement]:
    """Returns the statements of one part of `file`, which lists them by Sid; each `$name` becomes
    its value in `values`.
    """
    # Imported here: callers that only fill in a document need no aws_cdk.
    from aws_cdk import aws_iam as iam

    bodies = fill(json.loads(file.read_text(encoding="utf-8"))[part], values)
    return [
        iam.PolicyStatement.from_json({"Sid": sid, "Effect": "Allow", **body})
        for sid, body in bodies.items()
    ]
