"""The data job's environment, parsed once at the door: afterwards only typed values travel.

Promises: a `SettingError` names the variable, what was found and what is allowed; nothing is read or written yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from paddle_node import contract
from paddle_node.contract import JobFolder, Variable
from paddle_node.failure import SettingError
from paddle_node.splitting.source import public

FORMATS = ("lines", "files")
_READER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


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
    pod: int
    """Which of the pods that share the split this one is, from 0."""
    job: str = ""
    """Hash of the data job's template, for the manifest; empty where nobody asks."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> SplitSettings:
        """Raises `SettingError` for the first variable that is missing or wrong."""
        program_from = environ.get(Variable.PROGRAM_FROM, "").rstrip("/")
        return cls(
            folder=JobFolder(_folder(environ)),
            shards=_shards(environ),
            source=_source(environ),
            format=_format(environ),
            hold_out=_hold_out(environ),
            seed=environ.get(Variable.SHUFFLE_SEED, "") or None,
            program_from=program_from,
            program=program_from.rpartition("/")[2] or environ.get(Variable.TRAIN_CONFIG_DIR, ""),
            pod=_pod(environ),
            job=environ.get(Variable.DATA_JOB, ""),
        )


def local_path(variable: Variable, value: str, environ: Mapping[str, str]) -> Path:
    """A container path as it lies here."""
    try:
        return contract.path(value, dict(environ))
    except ValueError:
        raise SettingError(f"{variable} is {value!r}: an absolute path in the container is needed") from None


def _folder(environ: Mapping[str, str]) -> Path:
    value = environ.get(Variable.OUT_DIR, "")
    if not value:
        raise SettingError(f"{Variable.OUT_DIR} is missing: it names the job's folder on the volume, /home/jobpath/<job name>")
    return local_path(Variable.OUT_DIR, value, environ)


def _shards(environ: Mapping[str, str]) -> int:
    value = environ.get(Variable.SPLIT_COUNT, "")
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise SettingError(f"{Variable.SPLIT_COUNT} is {value!r}: the number of shards is a whole number from 1")
    return int(value)


def _source(environ: Mapping[str, str]) -> str:
    value = environ.get(Variable.DATA_SOURCE, "")
    if not value:
        raise SettingError(f"{Variable.DATA_SOURCE} is missing: a path in the container, s3://bucket/key or an https:// address")
    scheme, separator, rest = value.partition("://")
    if separator and scheme not in ("s3", "https", "http"):
        raise SettingError(
            f"{Variable.DATA_SOURCE} is {value!r}: paths, s3://, https:// and http:// can be read, {scheme}:// cannot"
        )
    if separator and not rest.partition("/")[0]:
        raise SettingError(f"{Variable.DATA_SOURCE} is {value!r}: the {'bucket' if scheme == 's3' else 'host'} is missing")
    if scheme in ("http", "https") and separator:
        _check_address(value)
    if not separator and _folder(environ).is_relative_to(local_path(Variable.DATA_SOURCE, value, environ)):
        raise SettingError(
            f"{Variable.DATA_SOURCE} is {value!r}, which holds {Variable.OUT_DIR}: the shards would become a part of their own "
            "source; a folder beside the job's is allowed, and one in it"
        )
    return value


def _check_address(address: str) -> None:
    """Raises `SettingError` where nobody could be asked."""
    shown = f"{Variable.DATA_SOURCE} is {public(address)!r}"
    if not re.fullmatch("[!-~]+", address):
        raise SettingError(f"{shown}: blanks and letters beyond ASCII are written as %20 and the like in an address")
    try:
        parts = urlsplit(address)
        found = parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        found = None
    if not found:
        raise SettingError(f"{shown}: its host or port cannot be read")
    if parts.username is not None:
        raise SettingError(f"{shown}, with a user or password, which would not be sent: a signed address is allowed")


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
        raise SettingError(f"{Variable.HOLD_OUT} is {value!r}: the share kept for evaluation is a number from 0 to below 1")
    return share


def _pod(environ: Mapping[str, str]) -> int:
    """Work is shared by who comes first, so the number of pods itself is not needed; a wrong one is still a mistake."""
    pods = environ.get(Variable.SPLIT_PODS, "") or "1"
    index = environ.get(Variable.COMPLETION_INDEX, "") or "0"
    if not pods.isascii() or not pods.isdigit() or int(pods) < 1:
        raise SettingError(f"{Variable.SPLIT_PODS} is {pods!r}: the number of pods that share the split is a whole number from 1")
    if not index.isascii() or not index.isdigit() or int(index) >= int(pods):
        raise SettingError(
            f"{Variable.COMPLETION_INDEX} is {index!r}: with {Variable.SPLIT_PODS}={pods} it is a number below {pods}"
        )
    return int(index)
