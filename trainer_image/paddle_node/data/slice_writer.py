"""Writes one index's slice of the source as the files of the shards."""

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from paddle_node.data import doubts, parts, records, whole_files
from paddle_node.data.deal import HELD_OUT, Deal
from paddle_node.data.parts import Files
from paddle_node.data.settings import FORMATS, SplitSettings
from paddle_node.data.sources import unpack
from paddle_node.data.sources.source import Object, Piece, Source, cut

REPORT_INTERVAL = 1.0
"""Seconds between two lines about the progress."""


class SliceWriter:
    """Writes a slice once, to an empty folder."""

    def __init__(
        self,
        settings: SplitSettings,
        source: Source,
        objects: Sequence[Object],
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        """`objects`: those of the whole source."""
        self._settings, self._source, self._folder, self._say = settings, source, folder, say
        self._several = len(objects) > 1
        self._pieces = cut(list(map(Piece, objects)), settings.pods, self._cuttable)[settings.index]
        self._bytes = sum(piece.bytes for piece in self._pieces)
        self._prefix = f"splits/{folder.parent.name}/{folder.name}"
        """The folder's name in the manifest."""
        self._reader: records.RecordReader | None = None
        self._reported = time.monotonic()

    def write(self) -> Files:
        """Returns the files, by shard. Raises `Failure`, OSError."""
        if self._settings.format == "files":
            files = whole_files.write(
                self._settings,
                self._source,
                self._pieces,
                self._folder,
                self._prefix,
                self._several,
                self._report,
            )
            names = (file.name.split("/", 4)[-1] for folder in files.values() for file in folder)
            for name in itertools.islice(filter(doubts.is_odd, names), 1):
                self._say(
                    f"warning: the name {name!a} is not UTF-8, so the program meets bytes that "
                    "it cannot print: pack the files with names in UTF-8"
                )
            return files
        if self._settings.format not in FORMATS:
            folder = self._settings.reader_folder
            self._reader = records.load_reader(self._settings.format, folder)
        settings = self._settings
        shard_bytes = self._bytes // settings.shards
        at_once = (
            parts.open_at_once(shard_bytes, settings.shards) if settings.seed is not None else 1
        )
        streams = parts.Streams(
            self._folder,
            self._prefix,
            [*map(str, range(settings.shards)), HELD_OUT],
            at_once,
            settings.index,
        )
        deal = Deal(streams, settings.shards, settings.hold_out, settings.own_seed, settings.first)
        for batch in records.batches(
            self._source, self._pieces, settings.format, self._reader, bool(settings.header)
        ):
            if not (deal.taken or settings.index) and settings.format == "lines":
                for doubt in doubts.find_doubts(batch, self._pieces[0].thing.name):
                    self._say(f"warning: {doubt}")
            deal.take(batch)
            self._report(streams.written)
        share, taken = settings.hold_out, deal.taken
        deal.finish(max(1, round(taken * share)) if share and taken > 1 else 0)
        return streams.close()

    def _cuttable(self, thing: Object) -> bool:
        return self._settings.format == "lines" and unpack.is_cuttable(self._source, thing)

    def _report(self, written: int) -> None:
        if time.monotonic() - self._reported >= REPORT_INTERVAL:
            self._reported = time.monotonic()
            of = f" of {self._bytes / 1e6:,.0f}" if self._bytes else ""
            self._say(f"splitting {self._source.uri}: {written / 1e6:,.0f} MB{of}")
