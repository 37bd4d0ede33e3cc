"""IAM statements that stand in a JSON file, as IAM writes them: by part, and in it by Sid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aws_cdk import aws_iam as iam

OF_MACHINES = Path(__file__).with_name("machine_statements.json")
"""What the machines of a cluster may do."""


def statements(file: Path, part: str, **known: Any) -> list[iam.PolicyStatement]:
    """The statements of one part of `file`, which may say `Why` for people; `known` takes the place of what has a dollar sign."""

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: filled(inner) for name, inner in value.items() if name != "Why"}
        return known[value[1:]] if isinstance(value, str) and value.startswith("$") else value

    written = json.loads(file.read_text(encoding="utf-8"))[part]
    return [iam.PolicyStatement.from_json({"Sid": sid, "Effect": "Allow", **filled(one)}) for sid, one in written.items()]
