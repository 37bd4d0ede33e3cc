"""The data job's environment, parsed once at the door: afterwards only typed values travel.

Promises: a `SettingError` names the variable, what was found and what is allowed; nothing is read or written yet.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from paddle_node import contract
from paddle_node.contract import JobFolder, Variable
from paddle_node.data import sources
from paddle_node.failure import SettingError

FORMATS = ("lines", "files")
_READER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,100}")
_OURS = ("output", "splits", "programs", "held-out", "data-manifest.json")
"""What the data job, or the training, writes into the job's folder; beside these the shards' folders, which are numbers."""


@dataclass(frozen=True)
class SplitSettings:
    """What to split, how, and where to."""

    folder: JobFolder
    shards: int
    source: str
    """As the user wrote it: a container path, s3://, https:// or http://."""
    format: str
    hold_out: float
    seed: str | None
    program_from: str
    """Folder of the image, a container path; empty: nothing to copy."""
    program: str
    """The program's folder name under the job's folder."""
    pods: int
    """Pods that share the split; each is an index of the same Job."""
    index: int
    """Which of them this one is, from 0."""
    run: str
    """The data job's run, the same for all of its pods: names the folder of the split."""
    pod: str
    """This pod, and no other one of the same index: names the folder of what it writes."""
    job: str = ""
    """Hash of the data job's template, for the manifest; empty where nobody asks."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> SplitSettings:
        """Raises `SettingError` for the first variable that is missing or wrong."""
        program_from = environ.get(Variable.PROGRAM_FROM, "").rstrip("/")
        if program_from:
            local_path(Variable.PROGRAM_FROM, program_from, environ)
        folder = JobFolder(_folder(environ))
        pods, index = _pods(environ)
        return cls(
            folder=folder,
            shards=_shards(environ),
            source=_source(environ, folder),
            format=_format(environ),
            hold_out=_hold_out(environ),
            seed=environ.get(Variable.SHUFFLE_SEED, "") or None,
            program_from=program_from,
            program=program_from.rpartition("/")[2] or environ.get(Variable.TRAIN_CONFIG_DIR, ""),
            pods=pods,
            index=index,
            run=_run(environ, pods),
            pod=_named(Variable.POD_UID, environ) or uuid.uuid4().hex,
            job=environ.get(Variable.DATA_JOB, ""),
        )


def local_path(variable: Variable, value: str, environ: Mapping[str, str]) -> Path:
    """A container path as it lies here."""
    try:
        return contract.path(value, dict(environ))
    except ValueError:
        raise SettingError(f"{variable} is {value!r}: an absolute path in the container is needed") from None


def whole_number(value: str) -> int:
    """-1 where it is none, or longer than any that is meant."""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else -1


def refuse_own(folder: JobFolder, path: Path, shown: str) -> None:
    """Raises `SettingError` for a path of the source, or a pattern, that lies in what the job itself writes."""
    for place, root in ((path, folder.root), (Path(os.path.realpath(path)), Path(os.path.realpath(folder.root)))):
        if not place.is_relative_to(root) or place == root:
            continue
        first = place.relative_to(root).parts[0]
        ours = (*_OURS, *(name.name for name in root.glob("[0-9]*") if name.name.isdigit()))
        if first.isdigit() or any(fnmatchcase(name, first) for name in ours):
            raise SettingError(
                f"{Variable.DATA_SOURCE} is {shown!r}, which lies in what this job itself writes: "
                "name the source that the shards were split from"
            )


def _folder(environ: Mapping[str, str]) -> Path:
    value = environ.get(Variable.OUT_DIR, "")
    if not value:
        raise SettingError(f"{Variable.OUT_DIR} is missing: it names the job's folder on the volume, /home/jobpath/<job name>")
    return local_path(Variable.OUT_DIR, value, environ)


def _shards(environ: Mapping[str, str]) -> int:
    value = environ.get(Variable.SPLIT_COUNT, "")
    if (shards := whole_number(value)) < 1:
        raise SettingError(f"{Variable.SPLIT_COUNT} is {value[:20]!r}: the number of shards is a whole number from 1")
    return shards


def _source(environ: Mapping[str, str], folder: JobFolder) -> str:
    value = environ.get(Variable.DATA_SOURCE, "")
    sources.check(value)
    if "://" not in value:
        path = local_path(Variable.DATA_SOURCE, value, environ)
        if folder.root.is_relative_to(path):
            raise SettingError(
                f"{Variable.DATA_SOURCE} is {value!r}, which holds {Variable.OUT_DIR}: the shards would become a part of their "
                "own source; a folder beside the job's is allowed, and one in it"
            )
        refuse_own(folder, path, value)
    return value


def _format(environ: Mapping[str, str]) -> str:
    value = environ.get(Variable.DATA_FORMAT, "") or FORMATS[0]
    if value not in FORMATS and not _READER.fullmatch(value):
        raise SettingError(f"{Variable.DATA_FORMAT} is {value!r}: lines, files or module:function is allowed")
    return value


def _hold_out(environ: Mapping[str, str]) -> float:
    value = environ.get(Variable.HOLD_OUT, "") or "0"
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise SettingError(f"{Variable.HOLD_OUT} is {value[:40]!r}: the share kept for evaluation is a number from 0 to below 1")
    return share


def _pods(environ: Mapping[str, str]) -> tuple[int, int]:
    pods = environ.get(Variable.SPLIT_PODS, "") or "1"
    index = environ.get(Variable.COMPLETION_INDEX, "") or "0"
    if whole_number(pods) < 1:
        raise SettingError(
            f"{Variable.SPLIT_PODS} is {pods[:20]!r}: the number of pods that share the split is a whole number from 1"
        )
    if not 0 <= whole_number(index) < int(pods):
        raise SettingError(
            f"{Variable.COMPLETION_INDEX} is {index[:20]!r}: with {Variable.SPLIT_PODS}={pods} it is a number below {pods}"
        )
    return int(pods), int(index)


def _run(environ: Mapping[str, str], pods: int) -> str:
    run = _named(Variable.RUN_ID, environ)
    if not run and pods > 1:
        raise SettingError(f"{Variable.RUN_ID} is missing: the {pods} pods that share a split know each other by it")
    return run or uuid.uuid4().hex


def _named(variable: Variable, environ: Mapping[str, str]) -> str:
    value = environ.get(variable, "")
    if value and not _NAME.fullmatch(value):
        raise SettingError(f"{variable} is {value[:40]!r}: letters, digits and hyphens are allowed")
    return value
