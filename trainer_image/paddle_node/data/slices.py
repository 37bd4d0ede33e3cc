"""Writes one index's slice of the source as the files of the shards: its records or, in format
`files`, each file of the source, or of its archives, as one record that keeps its name.

Of files, the counts of two shards within an index differ by at most 1. Names are held in memory
(about 1.3 kB per file). A name that is too long for a file system is cut, and a digest replaces the
rest.
"""

import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import xxhash

from paddle_node.data import first_lines, parts, records
from paddle_node.data.deal import HELD_OUT, Deal
from paddle_node.data.parts import Files, PartFile
from paddle_node.data.settings import FORMATS, SplitSettings
from paddle_node.data.sources import unpack
from paddle_node.data.sources.source import Object, Piece, Source, cut, require_relative
from paddle_node.failure import BadData
from paddle_node.volume.data_manifest import DataFile

BLOCK = 1 << 20
AT_ONCE = 64
"""Maximum number of files waiting for the disk."""
LONGEST_NAME = 255
LONGEST_PATH = 2048
"""Bytes, not counting the prefix: the job's folder or a trainer's local disk."""
REPORT_INTERVAL = 1.0
"""Seconds between two lines about the progress."""


def write(
    settings: SplitSettings,
    source: Source,
    objects: Sequence[Object],
    folder: Path,
    say: Callable[[str], None],
) -> Files:
    """Writes the slice to an empty folder; `objects`: those of the whole source. Returns the files,
    by shard. Raises `Failure`, OSError.
    """

    def is_cuttable(thing: Object) -> bool:
        return settings.format == "lines" and unpack.is_cuttable(source, thing)

    pieces = cut(objects, settings.pods, is_cuttable)[settings.index]
    size = sum(piece.bytes for piece in pieces)
    reported = time.monotonic()

    def report(written: int) -> None:
        nonlocal reported
        if time.monotonic() - reported >= REPORT_INTERVAL:
            reported = time.monotonic()
            of = f" of {size / 1e6:,.0f}" if size else ""
            say(f"splitting {source.uri}: {written / 1e6:,.0f} MB{of}")

    if settings.format == "files":
        files = _write_files(settings, source, pieces, folder, len(objects) > 1, report)
        names = (file.name.split("/", 4)[-1] for shard in files.values() for file in shard)
        if (name := next(filter(first_lines.is_odd, names), None)) is not None:
            say(
                f"warning: the name {name!a} is not UTF-8, so the program meets bytes that "
                "it cannot print: pack the files with names in UTF-8"
            )
        return files
    reader = None
    if settings.format not in FORMATS:
        reader = records.load_reader(settings.format, settings.reader_folder)
    shards = settings.shards
    at_once = parts.open_at_once(size // shards, shards) if settings.seed is not None else 1
    folders = [*map(str, range(shards)), HELD_OUT]
    streams = parts.Streams(folder, folders, at_once, settings.index)
    deal = Deal(streams, shards, settings.hold_out, settings.own_seed, settings.first)
    for batch in records.batches(source, pieces, settings.format, reader, bool(settings.header)):
        if not (deal.taken or settings.index) and settings.format == "lines":
            for doubt in first_lines.find_doubts(batch, pieces[0].thing.name):
                say(f"warning: {doubt}")
        deal.take(batch)
        report(streams.written)
    share, taken = settings.hold_out, deal.taken
    deal.finish(max(1, round(taken * share)) if share and taken > 1 else 0)
    return streams.close()


def _write_files(
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
                components = (
                    name.split("/")
                    if len(os.fsencode(name)) <= LONGEST_PATH
                    else [name.replace("/", "_")]
                )
                part = PartFile(root, "/".join((folder, *map(_shorten, components))))
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
