"""Writes one index's slice of the source as the files of the shards, in one process or two."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from paddle_node.data import doubts, lanes, parts, records, whole_files
from paddle_node.data.deal import HELD_OUT, Deal
from paddle_node.data.lanes import Advance, Files, LaneResult
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
            return whole_files.write(
                self._settings,
                self._source,
                self._pieces,
                self._folder,
                self._prefix,
                self._several,
                self._report,
            )
        if self._settings.format not in FORMATS:
            folder = self._settings.reader_folder
            self._reader = records.load_reader(self._settings.format, folder)
        many = lanes.LANES if self._bytes >= lanes.SECOND_LANE_BYTES else 1
        shares = cut(self._pieces, many, self._cuttable)
        second = None
        if many > 1:
            second = partial(self._deal, 1, shares[1], lambda written: None, self._hold_out_alone)
        with lanes.run_second_lane(second) as other:
            first = self._deal(
                0,
                shares[0],
                partial(self._report_both, other, many),
                partial(self._hold_out_rest, other),
            )
            beside = other.result().files
            return {folder: files + beside.get(folder, []) for folder, files in first.files.items()}

    def _deal(
        self, lane: int, share: Sequence[Piece], advance: Advance, hold_out: Callable[[int], int]
    ) -> LaneResult:
        """Deals a lane's share of the slice. `hold_out`: how many of its records the lane holds
        out.
        """
        settings = self._settings
        shard_bytes = sum(piece.bytes for piece in share) // settings.shards
        at_once = (
            parts.open_at_once(shard_bytes, settings.shards) if settings.seed is not None else 1
        )
        streams = parts.Streams(
            self._folder,
            self._prefix,
            [*map(str, range(settings.shards)), HELD_OUT],
            at_once,
            settings.index * lanes.LANES + lane,
        )
        # The second lane deals backwards from where the first began.
        deal = Deal(
            streams,
            settings.shards,
            settings.hold_out,
            settings.own_seed,
            settings.first - lane,
            1 - 2 * lane,
        )
        for batch in records.batches(
            self._source, share, settings.format, self._reader, bool(settings.header)
        ):
            if not (deal.taken or settings.index or lane) and settings.format == "lines":
                for doubt in doubts.find_doubts(batch, share[0].thing.name):
                    self._say(f"warning: {doubt}")
            deal.take(batch)
            advance(streams.written)
        deal.finish(hold_out(deal.taken))
        return LaneResult(streams.close(), deal.taken, deal.held)

    def _hold_out_alone(self, taken: int) -> int:
        """In the second lane, which does not know how much the first one takes."""
        return int(taken * self._settings.hold_out)

    def _hold_out_rest(self, other: Future[LaneResult], taken: int) -> int:
        """In the first lane: what the whole slice is to hold out, without what the second did."""
        beside, share = other.result(), self._settings.hold_out
        taken += beside.taken
        held = max(1, round(taken * share)) if share and taken > 1 else 0
        return held - beside.held

    def _cuttable(self, thing: Object) -> bool:
        return self._settings.format == "lines" and unpack.is_cuttable(self._source, thing)

    def _report_both(self, other: Future[LaneResult], many: int, written: int) -> None:
        if other.done():
            other.result()  # Raises the second lane's error.
        self._report(many * written)

    def _report(self, written: int) -> None:
        if time.monotonic() - self._reported >= REPORT_INTERVAL:
            self._reported = time.monotonic()
            of = f" of {self._bytes / 1e6:,.0f}" if self._bytes else ""
            self._say(f"splitting {self._source.uri}: {written / 1e6:,.0f} MB{of}")
