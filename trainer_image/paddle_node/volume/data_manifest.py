"""`data-manifest.json` records what a split wrote; its presence on the volume means that the split
is complete.
"""

import contextlib
import hashlib
import io
import json
import re
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Self

from paddle_node import typed
from paddle_node.contract import SPLIT_MANIFEST
from paddle_node.failure import BadData
from paddle_node.retry import name_path
from paddle_node.volume import durable
from paddle_node.volume.job_folder import JobFolder

VERSION = 2
"""Version 1 named files relative to their shard's folder; version 2 names them relative to the
job's folder.
"""
CHECKSUM = "xxh3_128"
"""The checksum algorithm that this version writes."""
SHARED = re.compile(r"shared/[0-9a-f]{16}/[0-9a-f]{32}")
"""A shared copy's folder, relative to the volume: a digest of the source's address, then one of its
content's marks.
"""
_SETTINGS = attrgetter("source", "format", "seed", "hold_out", "shared", "inputs")
"""What a split was made of, and how."""


class ManifestError(BadData):
    """The manifest is unreadable, or its numbers contradict each other."""


@dataclass(frozen=True)
class SourceSummary:
    """What was split, and how to detect that it changed."""

    uri: str
    size: int
    """Bytes as stored at the source, compressed or not."""
    etag: str
    """Hash of all objects' names, sizes and marks; empty if a change could not be detected."""


@dataclass(frozen=True)
class DataFile:
    """One file of a shard."""

    name: str
    """Path relative to the job's folder: `splits/<split>/<index>.<pod>/<shard>/...`."""
    records: int
    bytes: int
    checksum: str
    """`<algorithm>:<hex>`."""

    def __post_init__(self) -> None:
        # Somebody else may have written the manifest: its names must not lead out of the job's
        # folder.
        parts = self.name.split("/")
        odd = not {"", ".", ".."}.isdisjoint(parts) or re.search(
            "[\0\ud800-\udc7f\udd00-\udfff]", self.name
        )
        if odd or len(parts) < 5 or parts[0] != "splits":
            raise ManifestError(
                f"a file is named {self.name[:80]!r}, not "
                "splits/<split>/<index>.<pod>/<shard>/<file>"
            )


@dataclass(frozen=True)
class Input:
    """An input of the job, beside its data."""

    name: str
    digest: str
    """SHA-256 of the listing of its copy, and the name of the copy's folder."""
    path: str
    """What it is below that folder: `files`, or one file there."""

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{64}", self.digest) or not re.fullmatch(
            r"files(/(?!\.\.?$)[^/\0]+)?", self.path
        ):
            raise ManifestError(f"the input {self.name[:80]!r} has no digest, or no file of it")


@dataclass(frozen=True)
class Shard:
    """The records of trainer `index`."""

    index: int
    files: tuple[DataFile, ...]

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)


@dataclass(frozen=True)
class DataManifest:
    """A complete split."""

    source: SourceSummary
    format: str
    seed: str | None
    """Seed of the shuffle; None keeps the source's order."""
    hold_out: float
    shards: tuple[Shard, ...]
    held_out: tuple[DataFile, ...]
    created: str
    records: int
    """Records in all shards, without those held out."""
    job: str = ""
    """Template hash of the data job that last verified the split. Trainers wait for that of their
    own. Empty: unknown.
    """
    indexes: int = 1
    """Pods that shared the split. The record counts of two shards may differ by up to this
    number.
    """
    shared: str = ""
    """Folder on the volume with the single copy that all trainers read; empty: the shards are in
    the job's folder.
    """
    inputs: tuple[Input, ...] = ()
    """What the job reads beside its data."""
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.shared and not SHARED.fullmatch(self.shared):
            raise ManifestError(f"shared is {self.shared[:80]!r}, not shared/<digest>/<digest>")
        counts = [shard.records for shard in self.shards]
        if not counts:
            raise ManifestError("it lists no shard")
        if [shard.index for shard in self.shards] != list(range(len(counts))):
            raise ManifestError(
                f"its shards are numbered {[shard.index for shard in self.shards]}, not 0 to "
                f"{len(counts) - 1}"
            )
        if sum(counts) != self.records:
            raise ManifestError(
                f"its shards hold {sum(counts)} records together, but it says {self.records}"
            )
        if max(counts) - min(counts) > self.indexes:
            raise ManifestError(
                f"its shards hold between {min(counts)} and {max(counts)} records: they may "
                f"differ by {self.indexes} at most"
            )

    def files(self) -> list[DataFile]:
        """Returns all files, the held-out ones last."""
        return [*(file for shard in self.shards for file in shard.files), *self.held_out]

    @property
    def split(self) -> str:
        """Name of the folder under `splits/` that holds the files."""
        return next(
            (file.name.split("/")[1] for file in self.files() if file.name.startswith("splits/")),
            "",
        )

    def is_same_split(self, other: Self) -> bool:
        """Returns whether both are splits of the same source with the same settings."""
        mine, others = _SETTINGS(self), _SETTINGS(other)
        return (mine, len(self.shards)) == (others, len(other.shards))

    def as_json(self) -> str:
        document = {
            name: value
            for name, value in vars(self).items()
            if value or name not in ("job", "shared", "inputs")
        }
        document["held_out"] = {"files": self.held_out}
        # `dumps` would hold every number and bracket of a million files as a separate string.
        text = io.StringIO()
        json.dump(document, text, indent=1, default=vars)
        text.write("\n")
        return text.getvalue()


def read(path: Path) -> DataManifest | None:
    """Returns the manifest at `path`, None if there is none. Raises `ManifestError` for a bad one,
    OSError from the volume.
    """
    try:
        durable.refresh(path.parent)
        with name_path(path):
            text = path.read_text()
    except FileNotFoundError:
        return None
    except (PermissionError, IsADirectoryError, NotADirectoryError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path} cannot be read: {error}") from None
    try:
        return parse(json.loads(text))
    except ManifestError as error:
        raise ManifestError(f"{path} cannot be trusted: {error.sentence}") from None
    except (ValueError, OverflowError, RecursionError):
        raise ManifestError(
            f"{path} is not valid JSON: delete it and split the data again"
        ) from None


def read_intact(path: Path) -> DataManifest | None:
    """Like `read`, but also returns None for a damaged manifest, which a split repairs."""
    with contextlib.suppress(ManifestError):
        return read(path)
    return None


def digest(path: Path) -> str:
    """Returns a digest of the data, independent of the run that split it and of the folder; empty
    if there is no manifest.
    """
    durable.refresh(path.parent)
    try:
        content = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return ""
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
        facts = {
            name: value
            for name, value in json.loads(content).items()
            if name not in ("job", "created")
        }
        for files in (*(shard["files"] for shard in facts["shards"]), facts["held_out"]["files"]):
            for file in files:
                file["name"] = name_in_shard(file["name"])
        content = json.dumps(facts, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()


def find(folder: JobFolder, digest_: str) -> Path | None:
    """Returns the manifest with that digest: a split's own, which never changes, or else the job's,
    which the next replaces.
    """
    places = (*durable.glob(folder.splits, f"*/{SPLIT_MANIFEST}"), folder.data_manifest)
    return next((place for place in places if digest(place) == digest_), None)


def name_in_shard(name: str) -> str:
    """Returns a file's name within its shard: without the folders of the split, the index and the
    shard.
    """
    return "/".join(name.split("/")[4:]) if name.startswith("splits/") else name


def parse(document: object) -> DataManifest:
    """Returns the manifest in a JSON document. Raises `ManifestError` for anything else."""
    try:
        top = typed.read(dict, document, "it")
        if top.get("version") != VERSION:
            raise ManifestError(
                f"it has version {top.get('version')!r}, this image reads {VERSION}"
            )
        held_out = typed.read(dict, top.get("held_out"), "held_out").get("files")
        manifest: DataManifest = typed.read(DataManifest, {**top, "held_out": held_out}, "it")
    except typed.Untyped as wrong:
        raise ManifestError(str(wrong)) from None
    return manifest
