"""The data job's environment, parsed once: a `BadSetting` names the variable, what was found and
what is allowed.
"""

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Self

from paddle_node import contract
from paddle_node.contract import Bounds, Variable
from paddle_node.data.sources.source import check_address
from paddle_node.environment import Reader, read_settings, setting
from paddle_node.failure import BadSetting
from paddle_node.volume.job_folder import JobFolder

FORMATS = ("lines", "files")
_NAME = (r"[A-Za-z0-9][A-Za-z0-9-]{0,100}", "letters, digits and hyphens are allowed")
_SHARED = (r"shared/[0-9a-f]{16}", "shared/ and 16 hexadecimal digits are needed")
_SHARE = "the share kept for evaluation is a number from 0 to below 1"
_OURS = ("output", "splits", "programs", "held-out", contract.DATA_MANIFEST)
"""Names that the data job or the training writes in the job's folder, besides the shards' folders,
which are numbers.
"""


@dataclass(frozen=True, kw_only=True)
class SplitSettings:
    """What to split, how, and into which folder."""

    folder: JobFolder
    shards: int = setting(Reader.integer, Variable.SPLIT_COUNT)
    source: str = setting(Reader.raw, Variable.DATA_SOURCE)
    """As the user wrote it: a container path, s3://, https:// or http://. Empty: no data."""
    inputs: Mapping[str, str] = setting(Reader.texts, Variable.INPUTS)
    """Where each input is: an address, or `job:<name>[/<path>]`."""
    format: str = setting(
        Reader.matching_text,
        Variable.DATA_FORMAT,
        contract.RECORD_FORMAT,
        "lines, files or module:function is allowed",
        FORMATS[0],
    )
    header: int = setting(Reader.integer, Variable.HEADER)
    hold_out: float = setting(Reader.number, Variable.HOLD_OUT, _SHARE)
    seed: str | None
    program_from: str
    """Folder in the image, as a container path; empty: nothing to copy."""
    program: str
    """Name of the program's folder in the job's folder."""
    archive: str = setting(Reader.digest, Variable.PROGRAM_ARCHIVE)
    """SHA-256 of the archive that holds the record reader; empty: there is none."""
    reader_folder: Path
    pods: int = setting(Reader.integer, Variable.SPLIT_PODS)
    """Pods that share the split; each is an index of the same Job."""
    index: int
    run: str = setting(Reader.matching_text, Variable.RUN_ID, *_NAME)
    """Run id, the same for all pods; names the folder of the split."""
    pod: str = setting(Reader.matching_text, Variable.POD_UID, *_NAME)
    """UID of this pod; names the folder that it writes to."""
    shared: Path | None = None
    """Folder for the single unsplit copy that all jobs share; None: the data is split."""
    job: str = setting(Reader.text, Variable.DATA_JOB, "")
    """Hash of the data job's template, for the manifest; may be empty."""

    @property
    def own_seed(self) -> str | None:
        return None if self.seed is None else f"{self.seed}/{self.index}"

    @property
    def first(self) -> int:
        return self.index % self.shards

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Raises `BadSetting` for the first variable that is missing or wrong."""
        read = Reader(environ)
        settings = read_settings(cls, read)
        program_from = read.absolute(Variable.PROGRAM_FROM, "").rstrip("/")
        folder = JobFolder(read.place(Variable.OUT_DIR))
        if settings["source"] or not read.raw(Variable.INPUTS):
            check_address(settings["source"])
        if settings["source"] and "://" not in settings["source"]:
            refuse_own(folder, [contract.path(settings["source"], environ)], settings["source"])
        program = program_from.rpartition("/")[2] or read.text(Variable.TRAIN_CONFIG_DIR, "")
        if program in _OURS or program.isdigit():
            raise BadSetting(
                f"{Variable.PROGRAM_FROM} is {program_from!r}: the data job itself writes "
                f"{program} in the job's folder"
            )
        pods, shared = settings["pods"], read.matching_text(Variable.SHARED, *_SHARED)
        if not settings["run"] and pods > 1:
            raise BadSetting(
                f"{Variable.RUN_ID} is missing: the {pods} pods that share a split recognize "
                "each other by it"
            )
        unnamed = {name: uuid.uuid4().hex for name in ("run", "pod") if not settings[name]}
        return cls(
            **settings | unnamed,
            folder=folder,
            shared=folder.root.parent / shared if shared else None,
            seed=read.raw(Variable.SHUFFLE_SEED) or None,
            program_from=program_from,
            program=program,
            reader_folder=contract.path(contract.UNPACKED, environ)
            if settings["archive"]
            else folder.program(program),
            index=read.integer(Variable.COMPLETION_INDEX, Bounds(0, 0, pods - 1)),
        )


def refuse_own(folder: JobFolder, paths: Iterable[Path], shown: str) -> None:
    """Raises `BadSetting` if a path or pattern of the source is, or contains, what the job itself
    writes.
    """
    for path in paths:
        for real in (str, os.path.realpath):
            place, top = Path(real(path)), Path(real(folder.root))
            below = place.relative_to(top).parts[:1] if place.is_relative_to(top) else ()
            # A pattern may match a shard's folder.
            reserved = any(
                first.isdigit() or fnmatchcase(name, first)
                for first in below
                for name in (*_OURS, "0", "1", "2")
            )
            if reserved or top.is_relative_to(place):
                raise BadSetting(
                    f"{Variable.DATA_SOURCE} is {shown!r}, which lies in what this job itself "
                    "writes, or holds it: name the source that the shards were split from, in a "
                    "folder beside the job's folder, or in it"
                )
