"""`data-manifest.json` says what a split wrote; its presence on the volume means that the split is complete."""

import contextlib
import hashlib
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from paddle_node import durable, typed
from paddle_node.contract import SPLIT_MANIFEST, JobFolder
from paddle_node.failure import BadData
from paddle_node.retry import naming

VERSION = 2
"""1 named files below their shard's folder; 2 names them below the job's."""
CHECKSUM = "xxh3_128"
"""The algorithm of the checksums that this version writes."""
SHARED = re.compile(r"shared/[0-9a-f]{16}/[0-9a-f]{32}")
"""The folder of a shared copy, below the volume: digests of the source's address, and of its content's marks."""


class ManifestError(BadData):
    """The manifest cannot be read, or its numbers contradict each other."""


@dataclass(frozen=True)
class Source:
    """What was split, and by what a change of it is seen."""

    uri: str
    size: int
    """Bytes at the source, compressed or not."""
    etag: str
    """Hash of all objects' names, sizes and marks; empty where a change could not be seen."""


@dataclass(frozen=True)
class DataFile:
    """One file of a shard."""

    name: str
    """Below the job's folder: `splits/<split>/<index>.<pod>/<shard>/...`."""
    records: int
    bytes: int
    checksum: str
    """`<algorithm>:<hex>`."""

    def __post_init__(self) -> None:
        # Others may have written the manifest: it must not lead out of the job's folder.
        parts = self.name.split("/")
        odd = not {"", ".", ".."}.isdisjoint(parts) or re.search("[\0\ud800-\udc7f\udd00-\udfff]", self.name)
        if odd or len(parts) < 5 or parts[0] != "splits":
            raise ManifestError(f"a file is named {self.name[:80]!r}, not splits/<split>/<index>.<pod>/<shard>/<file>")


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

    source: Source
    format: str
    seed: str | None
    """Seed of the shuffle; None keeps the source's order."""
    hold_out: float
    shards: tuple[Shard, ...]
    held_out: tuple[DataFile, ...]
    created: str
    records: int
    """In all shards, without the held-out ones."""
    job: str = ""
    """The data job that verified it last, by its template's hash: trainers wait for their own; empty: unknown."""
    indexes: int = 1
    """Pods that shared the split; counts of two shards may differ by as many."""
    shared: str = ""
    """Folder of the volume with the one copy that all trainers read; empty: shards in the job's folder."""
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.shared and not SHARED.fullmatch(self.shared):
            raise ManifestError(f"shared is {self.shared[:80]!r}, not shared/<digest>/<digest>")
        counts = [shard.records for shard in self.shards]
        if not counts:
            raise ManifestError("it lists no shard")
        if [shard.index for shard in self.shards] != list(range(len(counts))):
            raise ManifestError(f"its shards are numbered {[shard.index for shard in self.shards]}, not 0 to {len(counts) - 1}")
        if sum(counts) != self.records:
            raise ManifestError(f"its shards hold {sum(counts)} records together, but it says {self.records}")
        if max(counts) - min(counts) > self.indexes:
            raise ManifestError(
                f"its shards hold between {min(counts)} and {max(counts)} records: they may differ by {self.indexes} at most"
            )

    def files(self) -> list[DataFile]:
        """All of them, the held-out ones last."""
        return [*(file for shard in self.shards for file in shard.files), *self.held_out]

    @property
    def split(self) -> str:
        """The folder below `splits/` that the files lie in."""
        return next((file.name.split("/")[1] for file in self.files() if file.name.startswith("splits/")), "")

    def same(self, other: Self) -> bool:
        """Whether both are splits of the same source by the same settings."""

        def settings(one: Self) -> tuple[object, ...]:
            return one.source, one.format, one.seed, one.hold_out, len(one.shards), one.shared

        return settings(self) == settings(other)

    def as_json(self) -> str:
        document = {name: value for name, value in vars(self).items() if value or name not in ("job", "shared")}
        document["held_out"] = {"files": self.held_out}
        # `dumps` would hold each number and bracket of a million files as a string of its own.
        text = io.StringIO()
        json.dump(document, text, indent=1, default=vars)
        text.write("\n")
        return text.getvalue()


def read(path: Path) -> DataManifest | None:
    """The manifest at `path`, or None where there is none. Raises `ManifestError` for a wrong one, OSError from the volume."""
    try:
        durable.look(path.parent)
        with naming(path):
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
        raise ManifestError(f"{path} is not valid JSON: delete it and split the data again") from None


def whole(path: Path) -> DataManifest | None:
    """`read`, and None for a damaged one, too, which a split mends."""
    with contextlib.suppress(ManifestError):
        return read(path)
    return None


def digest(path: Path) -> str:
    """Identifies the data, whichever run split it into which folder; empty where there is no manifest."""
    durable.look(path.parent)
    try:
        found = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return ""
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
        told = {name: value for name, value in json.loads(found).items() if name not in ("job", "created")}
        for files in (*(shard["files"] for shard in told["shards"]), told["held_out"]["files"]):
            for file in files:
                file["name"] = below(file["name"])
        found = json.dumps(told, sort_keys=True).encode()
    return hashlib.sha256(found).hexdigest()


def find(folder: JobFolder, wanted: str) -> Path | None:
    """The manifest of that digest; a split's own, which never changes, before the job's, which the next split replaces."""
    places = (*sorted(folder.splits.glob(f"*/{SPLIT_MANIFEST}")), folder.data_manifest)
    return next((place for place in places if digest(place) == wanted), None)


def below(name: str) -> str:
    """A file's name in its shard, without the folder of the split, of its index and of the shard."""
    return "/".join(name.split("/")[4:]) if name.startswith("splits/") else name


def parse(document: object) -> DataManifest:
    """A manifest from its JSON document; raises `ManifestError` for anything else."""
    try:
        top = typed.read(dict, document, "it")
        if top.get("version") != VERSION:
            raise ManifestError(f"it has version {top.get('version')!r}, this image reads {VERSION}")
        held_out = typed.read(dict, top.get("held_out"), "held_out").get("files")
        manifest: DataManifest = typed.read(DataManifest, {**top, "held_out": held_out}, "it")
    except typed.Untyped as wrong:
        raise ManifestError(str(wrong)) from None
    return manifest
