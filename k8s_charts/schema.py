"""job.yaml's JSON Schema, by which editors complete and check it.

`python -m k8s_charts.schema` writes docs/job.schema.json anew; a test keeps the file equal to the settings.
"""

from __future__ import annotations

import json
from pathlib import Path

from k8s_charts.spec import TrainingJob

FILE = Path("docs/job.schema.json")


def text() -> str:
    """The schema as the file holds it."""
    schema = TrainingJob.model_json_schema(by_alias=True)
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
