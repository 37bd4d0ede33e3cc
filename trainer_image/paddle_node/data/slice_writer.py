"""Writes one index's slice of the source as the files of the shards."""

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

    pieces = cut(list(map(Piece, objects)), settings.pods, is_cuttable)[settings.index]
    size = sum(piece.bytes for piece in pieces)
    reported = time.monotonic()

    def report(written: int) -> None:
        nonlocal reported
        if time.monotonic() - reported >= REPORT_INTERVAL:
            reported = time.monotonic()
            of = f" of {size / 1e6:,.0f}" if size else ""
            say(f"splitting {source.uri}: {written / 1e6:,.0f} MB{of}")

    if settings.format == "files":
        files = whole_files.write(settings, source, pieces, folder, len(objects) > 1, report)
        names = (file.name.split("/", 4)[-1] for shard in files.values() for file in shard)
        if (name := next(filter(doubts.is_odd, names), None)) is not None:
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
            for doubt in doubts.find_doubts(batch, pieces[0].thing.name):
                say(f"warning: {doubt}")
        deal.take(batch)
        report(streams.written)
    share, taken = settings.hold_out, deal.taken
    deal.finish(max(1, round(taken * share)) if share and taken > 1 else 0)
    return streams.close()
