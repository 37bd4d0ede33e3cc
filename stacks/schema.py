"""Writes docs/cluster.schema.json, by which editors complete and check cluster.yaml: `python -m stacks.schema`."""

from __future__ import annotations

import json
from pathlib import Path

from stacks.cluster_spec import ClusterSpec

FILE = Path(__file__).parents[1] / "docs" / "cluster.schema.json"


def main() -> None:
    """Writes the file."""
    FILE.write_text(json.dumps(ClusterSpec.model_json_schema(), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
