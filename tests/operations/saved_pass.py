"""A pass on a volume as a trainer leaves it: sealed in its attempt's folder, with the link for
people.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddle_node.volume import passes
from paddle_node.volume.job_folder import JobFolder


def save_pass(job: JobFolder, number: int, files: Mapping[str, bytes], attempt: int = 1) -> Path:
    return _save(
        job, f"pass-{number:05d}", files, {"pass": number, "attempt": attempt, "trainers": []}
    )


def save_model(job: JobFolder, files: Mapping[str, bytes], attempt: int = 1) -> Path:
    return _save(job, passes.INFERENCE, files, {"pass": 2, "attempt": attempt, "saved": ""})


def _save(job: JobFolder, name: str, files: Mapping[str, bytes], record: Mapping[str, Any]) -> Path:
    directory = job.attempt("run", record["attempt"]) / name
    for file, content in files.items():
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).write_bytes(content)
    passes.seal(directory, {"run": "run", "data": "d", "program": "p", **record})
    passes.link_newest(job, directory.name)
    return directory
