"""What the environment Job leaves on the volume when it has failed for good, so that the job's pods
end with its sentence instead of waiting.

A refusal is created exclusively, under the UID of the Job's run, and names the job: another job's
pods wait for their own Job. The job's next environment Job removes it before it begins.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from paddle_node.contract import Variable
from paddle_node.environment import Reader
from paddle_node.volume import durable

LONGEST = 10_000
"""Bytes of a refusal that are read."""


def add(folder: Path, environ: Mapping[str, str], sentence: str) -> None:
    """Says to the job's pods why there will be no environment. Raises OSError."""
    if run := Reader(environ).text(Variable.RUN_ID, ""):
        refusal = {"job": _job(environ), "sentence": "".join(filter(str.isprintable, sentence))}
        durable.create(folder / f"refusal-{run}.json", json.dumps(refusal) + "\n")


def remove(folder: Path, environ: Mapping[str, str]) -> None:
    """Removes what earlier runs of this job's environment Job said. Raises OSError."""
    for file, _ in read(folder, environ):
        file.unlink(missing_ok=True)


def read(folder: Path, environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yields the job's refusals, each with its sentence. Raises OSError."""
    durable.look(folder)
    for file in durable.glob(folder, "refusal-*.json"):
        if sentence := _sentence(file, _job(environ)):
            yield file, sentence


def _sentence(file: Path, job: str) -> str:
    """Returns what a refusal of the job says; empty for anything else."""
    # Its Job's next run may remove it meanwhile.
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        if (stream := durable.open_file(file)) is not None:
            with stream:
                refusal = json.loads(stream.read(LONGEST))
            if refusal["job"] == job and refusal["sentence"].isprintable():
                return str(refusal["sentence"])
    return ""


def _job(environ: Mapping[str, str]) -> str:
    read = Reader(environ)
    return f"{read.text(Variable.JOB_NAMESPACE, '')}/{read.text(Variable.JOB_NAME, '')}"
