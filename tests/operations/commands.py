"""The files that the tests run commands with, and how the commands ended."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

FILES = yaml.safe_load(Path(__file__).with_name("commands.yaml").read_text())
JOB = FILES["job.yaml"]


def lay_out(folder: Path) -> None:
    """Fills a project's folder with a job file and with what deploy and push wrote."""
    (folder / "job.yaml").write_text(JOB)
    for name in ("outputs.json", "image.json"):
        (folder / name).write_text(json.dumps(FILES[name]))


@dataclass(frozen=True)
class Done:
    """Exit code and output."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]
