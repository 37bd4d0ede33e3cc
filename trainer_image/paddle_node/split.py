"""The data job: a source becomes N shards of equal record counts, and rows held out for evaluation, on the volume.

Promises: `data-manifest.json` is written last, so its presence means complete; the same source, seed and N give the
same bytes, by any number of pods; running again changes nothing; a run that was interrupted goes on where it was; a
failure, a full volume included, ends with one sentence and leaves what was complete before as it was. Memory stays
below 100 MB for any size.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import xxhash

from paddle_node import contract, data_manifest, full_disk
from paddle_node.contract import ExitCode
from paddle_node.data_manifest import DataManifest, Shard, Source
from paddle_node.failure import Failure
from paddle_node.patience import patiently
from paddle_node.program_copy import copy_program, equal
from paddle_node.splitting import commit, counting, one_pass, parts, shares, sources, units, user_reader, whole_files
from paddle_node.splitting.progress import Progress
from paddle_node.splitting.sequence import Order, SourceOrder
from paddle_node.splitting.settings import FORMATS, SplitSettings
from paddle_node.splitting.source import Object, Reader, public, summary
from paddle_node.splitting.steps import Finished, Step, Steps, at_work

LAYOUT = 4
"""Raised whenever the same input would give other bytes than before, or the folder of work looks otherwise."""

WORKERS = 4
"""Files at a time, also on fewer cores: while some wait for the volume, others copy."""


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Runs the data job; returns the exit code, after one sentence on stderr when it is not 0."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        split(SplitSettings.from_environment(environ), environ)
    except Failure as failure:
        return _failed(failure.code, failure.sentence)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = environ.get(contract.Variable.OUT_DIR, "")
            full = full_disk.scratch(error, contract.path(where, dict(environ))) or f"the volume of {where}"
            return _failed(
                ExitCode.VOLUME_FULL,
                f"{full} is full: nothing that was complete before has changed; make room and run again",
            )
        return _failed(1, f"{error.filename or 'the volume'}: {error.strerror or error}")
    except KeyboardInterrupt:
        return _failed(ExitCode.TERMINATED, "interrupted; the next run goes on from here")
    return ExitCode.DONE


def split(settings: SplitSettings, environ: Mapping[str, str]) -> DataManifest:
    """Splits unless the manifest says that this very split is complete; returns the manifest.

    Raises `Failure`, and OSError from the volume.
    """
    folder = settings.folder
    folder.root.mkdir(parents=True, exist_ok=True)
    if settings.program_from:
        program, place = contract.path(settings.program_from, dict(environ)), folder.program(settings.program)
        if place.exists() and not equal(program, place):
            commit.refuse_used(folder, _say)
        copied = copy_program(program, place)
        _say(f"program {settings.program} {'copied to the volume' if copied else 'is on the volume already'}")
    reader = sources.open_source(settings.source, environ)
    objects = reader.objects()
    source = summary(settings.source, objects)

    def completed() -> DataManifest | None:
        return patiently(lambda: complete(settings, source), _say)

    done = completed()
    if done is not None:
        _say(f"{folder.data_manifest} is complete already: nothing to do")
        return _claimed(settings, done)
    commit.refuse_foreign(folder)
    if folder.data_manifest.exists():
        commit.refuse_used(folder, _say)
    _withdraw(settings, source)
    started = time.monotonic()
    work = commit.work_root(folder) / _plan(settings, source)
    _remove_abandoned(work)
    steps = Steps(work, f"pod-{settings.pod}", Progress(_say), lambda: completed() is not None)
    try:
        manifest = _split(settings, steps, reader, objects, source)
    except (Finished, FileNotFoundError):
        # Another pod has completed the split and swept the work away; or something else is missing.
        done = completed()
        if done is None:
            raise
        shutil.rmtree(work, ignore_errors=True)  # What this pod wrote there after that.
        manifest = done
    finally:
        steps.close()
    manifest = _claimed(settings, manifest)
    held = sum(file.records for file in manifest.held_out)
    _say(f"{manifest.records:,} records in {settings.shards} shards, {held:,} held out, in {time.monotonic() - started:.1f} s")
    return manifest


def _claimed(settings: SplitSettings, manifest: DataManifest) -> DataManifest:
    """The same data, said to be this data job's too: its trainers wait for that, and no others run in this folder."""
    if not settings.job or manifest.job == settings.job:
        return manifest
    ours = replace(manifest, job=settings.job)
    data_manifest.write(ours, settings.folder.data_manifest)
    return ours


def _withdraw(settings: SplitSettings, source: Source) -> None:
    """The old shards are no longer said to be this data job's: trainers that begin now wait for the new ones."""
    with contextlib.suppress(data_manifest.ManifestError):
        manifest = data_manifest.read(settings.folder.data_manifest)
        if manifest is not None and settings.job and manifest.job == settings.job and complete(settings, source) is None:
            data_manifest.write(replace(manifest, job=""), settings.folder.data_manifest)


def complete(settings: SplitSettings, source: Source) -> DataManifest | None:
    """The manifest of this very split, its files there with their sizes; else None."""
    try:
        manifest = data_manifest.read(settings.folder.data_manifest)
    except data_manifest.ManifestError:
        return None  # Damaged: splitting again mends it.
    if manifest is None or len(manifest.shards) != settings.shards:
        return None
    if (manifest.source, manifest.format, manifest.seed, manifest.hold_out) != (
        source,
        _format(settings),
        settings.seed,
        settings.hold_out,
    ):
        return None
    folders = [(settings.folder.shard(shard.index), shard.files) for shard in manifest.shards]
    for folder, files in [*folders, (settings.folder.held_out, manifest.held_out)]:
        for file in files:
            try:
                if (folder / file.name).stat().st_size != file.bytes:
                    return None
            except FileNotFoundError:
                return None
    return manifest


def _split(settings: SplitSettings, steps: Steps, reader: Reader, objects: tuple[Object, ...], source: Source) -> DataManifest:
    folder, workers = settings.folder, WORKERS
    if (staged := data_manifest.read(steps.folder / commit.STAGED)) is None:
        steps.progress.phase(f"reading {public(settings.source)}", source.size or None)
        if settings.format == "files":
            files, records = _whole_files(settings, steps, reader, objects, workers)
        else:
            files, records = _records(settings, steps, reader, objects, workers)
        for thing in objects:
            if not reader.unchanged(thing):
                raise Failure(
                    ExitCode.BAD_DATA, f"{thing.name} of {settings.source} changed while it was being split: run the split again"
                )
        staged = DataManifest(
            source=source,
            format=_format(settings),
            seed=settings.seed,
            hold_out=settings.hold_out,
            shards=tuple(Shard(index, files[str(index)]) for index in range(settings.shards)),
            held_out=files.get(shares.HELD_OUT, ()),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            records=records,
            job=settings.job,
        )
    manifest = staged

    def work() -> bool:
        commit.stage(steps.folder, manifest)
        if folder.data_manifest.exists():
            commit.refuse_used(folder, _say)  # It may have begun while this split was at work.
        commit.commit(folder, steps.folder)
        return True

    steps.run([Step("commit", work)])
    steps.close()
    commit.sweep(folder)
    return manifest


def _records(settings: SplitSettings, steps: Steps, reader: Reader, objects: tuple[Object, ...], workers: int) -> _Written:
    custom = None if settings.format in FORMATS else user_reader.load(settings.format, settings.folder.program(settings.program))
    # A user's reader need not be safe for threads.
    pieces = units.prepare(steps, reader, objects, custom, 1 if custom else workers)
    total = sum(unit.size for unit in pieces)
    in_order = custom is None and settings.seed is None and not settings.hold_out
    if in_order and (size := one_pass.piece_size(total, settings.shards)):
        steps.progress.phase("copying and counting", total)
        copied = one_pass.copy(steps, pieces, size, workers)
        records = sum(piece.records for piece in copied)
        division = shares.shares(records, settings.shards, 0, settings.source)
        return one_pass.deal(steps, copied, division, workers), records
    steps.progress.phase("counting", total)
    counting.count(steps, pieces, workers)
    records = sum(unit.records for unit in pieces)
    division = shares.shares(records, settings.shards, settings.hold_out, settings.source)
    held = shares.held_out(records, settings.hold_out)
    order: Order
    if settings.seed is None:
        order = SourceOrder(pieces, held)
    else:
        # Imported late: without a shuffle small data needs no numpy.
        from paddle_node.splitting.shuffle import ShuffledOrder

        order = ShuffledOrder(steps, pieces, settings.seed)
        workers = 1  # A leaf fills the memory, and Python moves its records one at a time anyway.
    steps.progress.phase("writing shards", total)
    return parts.write(steps, order, pieces[0].framing, division, total / records, workers), records - held


def _whole_files(settings: SplitSettings, steps: Steps, reader: Reader, objects: tuple[Object, ...], workers: int) -> _Written:
    found = whole_files.prepare(steps, reader, objects, workers)
    division = shares.shares(len(found), settings.shards, settings.hold_out, settings.source)
    held = shares.held_out(len(found), settings.hold_out)
    steps.progress.phase("writing shards", sum(file.bytes for file in found))
    return whole_files.write(steps, whole_files.in_order(found, held, settings.seed), division, workers), len(found) - held


_Written = tuple[dict[str, tuple[data_manifest.DataFile, ...]], int]


def _format(settings: SplitSettings) -> str:
    """As the manifest names it: a user's reader with its version, as other code gives other records."""
    if settings.format in FORMATS:
        return settings.format
    return f"{settings.format}@{user_reader.digest(settings.format, settings.folder.program(settings.program))}"


def _plan(settings: SplitSettings, source: Source) -> str:
    """Names the folder of work: only a run that would write the very same bytes goes on with it."""
    plan = (
        LAYOUT,
        settings.source,
        source.size,
        source.etag,
        settings.shards,
        _format(settings),
        settings.hold_out,
        settings.seed,
    )
    return xxhash.xxh3_64(json.dumps(plan).encode()).hexdigest()


def _remove_abandoned(work: Path) -> None:
    """Work of a split that nobody wants any more: its source or its settings have changed."""
    for other in work.parent.glob("*/"):
        if other == work or (other / commit.STAGED).exists():
            continue
        if at_work(other, _say):
            raise Failure(
                ExitCode.FOLDER_IN_USE,
                f"another split with other settings works in {work.parent.parent}: wait until it has ended, or end it",
            )
        shutil.rmtree(other, ignore_errors=True)


def _say(text: str) -> None:
    print(f"split: {text}", flush=True)


def _failed(code: int, sentence: str) -> int:
    print(f"split: {sentence}", file=sys.stderr, flush=True)
    return code


def _terminated(number: int, frame: FrameType | None) -> None:
    # At once: threads in the middle of a block need no waiting for, every result on the volume is whole.
    print("split: told to stop; the next run goes on from here", file=sys.stderr, flush=True)
    os._exit(ExitCode.TERMINATED)
