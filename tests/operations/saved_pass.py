"""A pass on a volume, as a trainer leaves it: in its attempt's folder, sealed, with the link for people."""

from collections.abc import Mapping
from pathlib import Path

from paddle_node.contract import JobFolder
from paddle_node.training import passes


def save_pass(job: JobFolder, number: int, files: Mapping[str, bytes], attempt: int = 1) -> Path:
    directory = job.attempt("run", attempt) / f"pass-{number:05d}"
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    passes.seal(directory, {"pass": number, "attempt": attempt, "run": "run", "data": "d", "program": "p", "trainers": []})
    passes.lead(job, directory.name)
    return directory


def save_model(job: JobFolder, files: Mapping[str, bytes], attempt: int = 1) -> Path:
    directory = job.attempt("run", attempt) / "inference"
    directory.mkdir(parents=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    passes.seal(directory, {"pass": 2, "saved": "", "attempt": attempt, "run": "run", "data": "d", "program": "p"})
    passes.lead(job, directory.name)
    return directory
