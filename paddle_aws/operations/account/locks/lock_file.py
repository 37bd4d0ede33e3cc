"""Writes a lock file: what was read at a source.

A file always begins with `read` (an ISO date, UTC) and `source`, and is written whole or stays as
it was.
"""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def write(path: Path, source: str, content: Mapping[str, Any]) -> None:
    """Writes `content` after the date and the source."""
    document = {"read": datetime.now(UTC).strftime("%Y-%m-%d"), "source": source, **content}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(document, indent=1) + "\n")
    part.replace(path)
