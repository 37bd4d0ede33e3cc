"""Format `files`: each file of the source, or of its archives, is one record and keeps its name.

Within an index, the record counts of two shards differ by at most 1. Names are held in memory
(about 1.3 kB per file). A name that is too long for a file system is cut, and a digest replaces the
rest.
"""

import os
import random
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import xxhash

from paddle_node.data.deal import HELD_OUT
from paddle_node.data.parts import Files, PartFile
from paddle_node.data.settings import SplitSettings
from paddle_node.data.sources import unpack
from paddle_node.data.sources.source import Piece, Source, require_relative
from paddle_node.failure import BadData
from paddle_node.volume.data_manifest import DataFile

BLOCK = 1 << 20
AT_ONCE = 64
"""Maximum number of files waiting for the disk."""
LONGEST_NAME = 255
LONGEST_PATH = 2048
"""Bytes, not counting the prefix: the job's folder or a trainer's local disk."""


def write(
    settings: SplitSettings,
    source: Source,
    pieces: Iterable[Piece],
    root: Path,
    several: bool,
    advance: Callable[[int], None],
) -> Files:
    """Writes and returns the files of each folder; `advance` is told the bytes written. With
    `several` objects, an archive's name precedes its members' names.
    """
    form = "shared" if settings.shared else "files"
    names, deal = Names(), _Deal(settings)
    files: dict[str, deque[Future[DataFile]]] = {
        name: deque() for name in (*map(str, range(settings.shards)), HELD_OUT)
    }
    waiting: deque[Future[DataFile]] = deque()
    written = 0
    with ThreadPoolExecutor(4, thread_name_prefix="sync") as pool:
        for piece in pieces:
            for name, content in unpack.members(source, piece.thing, form):
                if several and name not in (piece.thing.name, piece.thing.name.removesuffix(".gz")):
                    # In a shared copy, each archive is unpacked into the folder that it lies in.
                    folder = (
                        piece.thing.name if form == "files" else piece.thing.name.rpartition("/")[0]
                    )
                    name = f"{folder}/{name}"
                # The name of an S3 object may be any text.
                name = require_relative(name, piece.thing.name)
                names.add(name)
                folder = deal.next_folder()
                parts = (
                    name.split("/")
                    if len(os.fsencode(name)) <= LONGEST_PATH
                    else [name.replace("/", "_")]
                )
                part = PartFile(root, "/".join((folder, *map(_shorten, parts))))
                while block := content.read(BLOCK):
                    part.write(block, 0)
                    written += len(block)
                    advance(written)
                part.write(b"", 1)
                waiting.append(pool.submit(part.done))
                files[folder].append(waiting[-1])
                if len(waiting) > AT_ONCE:
                    waiting.popleft().result()
    return {
        folder: [file.result() for file in file_results] for folder, file_results in files.items()
    }


class _Deal:
    """Deals files to the shards in rounds, and holds out one of every so many."""

    def __init__(self, settings: SplitSettings) -> None:
        seed, hold_out = settings.own_seed, settings.hold_out
        self._first, self._shards = settings.first, settings.shards
        self._chance = random.Random(f"{seed}/files") if seed is not None else None
        self._order: list[int] = []
        self._taken = self._held = 0
        # At random or the middle one; the first time the second, as there may be no more.
        self._stride = 1 / max(hold_out, 1e-18) if hold_out else 0.0
        self._place = 1

    def next_folder(self) -> str:
        """Returns the folder of the next file."""
        self._taken += 1
        if self._stride and self._taken > self._place:
            self._held += 1
            self._place = _place(self._held, self._stride, self._chance)
            return HELD_OUT
        if not self._order:
            shards = self._shards
            self._order = [(self._first + shard) % shards for shard in reversed(range(shards))]
            if self._chance:
                self._chance.shuffle(self._order)
        return str(self._order.pop())


class Names:
    """Refuses names that cannot coexist in one folder."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, name: str) -> None:
        folders = {str(above) for above in PurePosixPath(name).parents} - self._folders
        if name in self._files:
            raise BadData(
                f"two files of the source are named {name}: format files needs names that differ"
            )
        for folder in (name,) if name in self._folders else folders & self._files:
            raise BadData(f"the source has a file and a folder named {folder}: rename one")
        self._files.add(name)
        self._folders |= folders


def _place(which: int, stride: float, chance: random.Random | None) -> int:
    begin, end = int(which * stride), int((which + 1) * stride)
    return chance.randrange(begin, max(end, begin + 1)) if chance and stride else (begin + end) // 2


def _shorten(part: str) -> str:
    encoded = os.fsencode(part)
    if len(encoded) <= LONGEST_NAME:
        return part
    mark = xxhash.xxh3_64(encoded).hexdigest()
    ending = PurePosixPath(part).suffix
    ending = ending if len(os.fsencode(ending)) <= 20 else ""
    begin = encoded[: LONGEST_NAME - len(mark) - 1 - len(os.fsencode(ending))].decode(
        errors="ignore"
    )
    return f"{begin}~{mark}{ending}"
