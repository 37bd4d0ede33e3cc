"""What the environment Job's tries leave on the volume when they fail, so that the job's pods end
with the last one's sentence instead of waiting: they cannot ask the cluster.

A refusal is created exclusively, under the UID of the Job's run, and names the job: another job's
pods wait for their own Job. The job's next environment Job removes it before it begins. Until then
it is for the run of pods that met it first, whose UID a second record has.
"""

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddle_node.contract import Variable
from paddle_node.environment import Reader
from paddle_node.volume import durable

REFUSAL_BYTES = 10_000
"""Bytes of a refusal that are read."""
BELIEVED_AFTER = 10.0
"""Seconds within which an environment Job that began with these pods removes an older refusal."""
MET_BELIEVED_AFTER = 60.0
"""The same for one that other pods have met: its Job may be waiting for a node."""


def add(folder: Path, environ: Mapping[str, str], sentence: str, *, lasting: bool) -> None:
    """Records why a try failed: the last one, if the fault is `lasting` or the Job's retries are
    used up. Raises BadSetting, OSError.
    """
    read = Reader(environ)
    if run := read.text(Variable.RUN_ID, ""):
        tries = len(durable.glob(folder, f"refusal-{run}-*.json"))
        refusal = {
            "job": _job(environ),
            "sentence": "".join(filter(str.isprintable, sentence)),
            "lasting": lasting,
            "last": lasting or tries >= read.integer(Variable.RETRIES),
        }
        durable.create(folder / f"refusal-{run}-{tries + 1}.json", json.dumps(refusal) + "\n")


def remove(folder: Path, environ: Mapping[str, str]) -> None:
    """Removes what earlier runs of this job's environment Job said. Raises OSError."""
    run = Reader(environ).text(Variable.RUN_ID, "")
    for file in durable.glob(folder, "refusal-*.json"):
        if _read(file).get("job") == _job(environ) and not file.name.startswith(f"refusal-{run}-"):
            file.unlink(missing_ok=True)
            _mark_file(file).unlink(missing_ok=True)


def find(folder: Path, environ: Mapping[str, str]) -> dict[Path, str]:
    """Returns the sentences for which the job's pods may end, by file. Raises OSError."""
    durable.refresh(folder)
    refusals = {file: _read(file) for file in durable.glob(folder, "refusal-*.json")}
    return {
        file: refusal["sentence"]
        for file, refusal in refusals.items()
        if refusal.get("job") == _job(environ) and refusal.get("last") is True
    }


def believed_seconds(file: Path, environ: Mapping[str, str]) -> float:
    """Returns the seconds after its start from which a pod believes a refusal that lay there when
    it began. A refusal because of a passing fault is no reason to expect the next Job to fail.
    Raises OSError.
    """
    try:
        run, seconds = _mark_file(file).read_text(), MET_BELIEVED_AFTER
    except FileNotFoundError:
        run, seconds = None, BELIEVED_AFTER
    if run == Reader(environ).text(Variable.RUN_ID, ""):
        return 0.0
    return seconds if _read(file).get("lasting") is True else math.inf


def mark_met(file: Path, environ: Mapping[str, str]) -> None:
    """Records that this run of pods ends for a refusal, unless another one has. Raises OSError."""
    durable.create(_mark_file(file), Reader(environ).text(Variable.RUN_ID, ""))


def _mark_file(file: Path) -> Path:
    return file.with_suffix(".met")


def _read(file: Path) -> dict[str, Any]:
    """Returns a refusal; nothing for anything else."""
    # Its Job's next run may remove it meanwhile.
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        if (stream := durable.open_file(file)) is not None:
            with stream:
                refusal = json.loads(stream.read(REFUSAL_BYTES))
            if isinstance(refusal, dict) and str.isprintable(refusal["sentence"]):
                return refusal
    return {}


def _job(environ: Mapping[str, str]) -> str:
    read = Reader(environ)
    return f"{read.text(Variable.JOB_NAMESPACE, '')}/{read.text(Variable.JOB_NAME, '')}"
