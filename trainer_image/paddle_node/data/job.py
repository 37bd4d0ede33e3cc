"""The data job: splits a source into N shards of nearly equal record counts on the volume, and
holds out records for evaluation.

It takes one pass over the source, and each index of an Indexed Job reads its own slice. The same
source, settings and number of indexes give the same bytes. A kill at any moment leaves a complete
split or none. Memory stays below 100 MB for any bytes.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from paddle_node import contract
from paddle_node.contract import ExitCode
from paddle_node.data import commit, inputs, parts, slices
from paddle_node.data.deal import HELD_OUT
from paddle_node.data.settings import FORMATS, SplitSettings, refuse_own
from paddle_node.data.sources import open_source
from paddle_node.data.sources.local_source import LocalSource
from paddle_node.data.sources.source import Object, Source, summary
from paddle_node.environment import Reader
from paddle_node.failure import BadSetting, Failure
from paddle_node.requirements import archive
from paddle_node.retry import disk_full, retry
from paddle_node.staging import program_archive, program_copy, shard_copy
from paddle_node.volume import data_manifest, durable
from paddle_node.volume.data_manifest import DataManifest, Input, Shard, SourceSummary
from paddle_node.volume.job_folder import JobFolder


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Runs the data job. Returns the exit code; if it is not 0, prints one sentence on stderr
    first.
    """
    signal.signal(signal.SIGTERM, _end_process)
    try:
        archive.enter(environ, _say)
        split(SplitSettings.from_environment(environ), environ)
        return ExitCode.DONE
    except Failure as failure:
        code, sentence = failure.code, failure.sentence
    except OSError as error:
        code, sentence = 1, f"{error.filename or 'the volume'}: {error.strerror or error}"
        if disk_full(error):
            where = (
                error.filename
                or f"{Reader(environ).raw(contract.Variable.OUT_DIR)}, or the pod's scratch"
            )
            sentence = (
                f"the disk of {where} is full: nothing that was complete before has changed; "
                "make room and run again"
            )
            code = ExitCode.VOLUME_FULL
    except KeyboardInterrupt:
        code, sentence = ExitCode.TERMINATED, "interrupted; run again"
    print(f"split: {sentence}", file=sys.stderr, flush=True)
    return code


def split(settings: SplitSettings, environ: Mapping[str, str]) -> DataManifest | None:
    """Splits this index's slice unless that split is complete. None while other indexes work.
    Raises `Failure`, OSError.
    """
    folder = settings.folder
    commit.refuse_foreign(folder)
    folder.root.mkdir(parents=True, exist_ok=True)
    if settings.program_from:
        program = contract.path(settings.program_from, environ)
        copied = program_copy.copy_program(program, folder, settings.program)
        _say(
            f"program {settings.program} "
            f"{'copied to the volume' if copied else 'is on the volume already'}"
        )
    if settings.archive:
        retry(
            lambda: program_archive.unpack(folder, settings.archive, settings.reader_folder), _say
        )
    brought = inputs.bring(settings.inputs, folder.root.parent, settings.pod, environ, _say)
    if not settings.source:
        return _describe_no_data(settings, brought)
    source = open_source(settings.source, environ)
    objects = source.objects()
    if isinstance(source, LocalSource):
        refuse_own(folder, map(source.path, objects), settings.source)
    intended = replace(_plan(settings, source, objects), inputs=brought)
    if settings.shared is not None:
        return _share(settings, settings.shared, source, objects, intended)
    retry(lambda: commit.sweep(folder, settings.run), _say)
    published = _publish(settings, source, objects, intended)
    if published is not None:
        commit.sweep(folder, published.split)
    return published


def _publish(
    settings: SplitSettings, source: Source, objects: Sequence[Object], intended: DataManifest
) -> DataManifest | None:
    """Makes a complete split the job's, an earlier one if it is equal. None: this index has no
    more to do, another one publishes.
    """
    folder = settings.folder
    while True:
        earlier, damaged = _complete(settings, intended)
        if earlier is None and (damaged or _is_spoilt(settings, intended)):
            settings = _rename_run(settings)
        if earlier is not None and settings.index and not earlier.split.startswith(settings.run):
            _say(f"{earlier.split} is complete already: index 0 reads and verifies it")
            return None
        try:
            complete = earlier or _split(settings, source, objects, intended)
            if complete is None:
                _say(
                    f"index {settings.index} of {settings.pods} is done; the split is complete "
                    "when all are"
                )
                return None
            if published := commit.put(folder, complete, settings.job):
                return published
        except FileNotFoundError:
            if (folder.splits / settings.run).exists():
                raise
        _say("another data job has just removed the split: splitting again")
        settings = _rename_run(settings)


def _share(
    settings: SplitSettings,
    shared: Path,
    source: Source,
    objects: Sequence[Object],
    intended: DataManifest,
) -> DataManifest:
    """Makes one copy for all jobs of the source. The first complete copy stays until a person
    removes it.
    """
    mark = intended.source.etag.partition(":")[2][:32]
    if not mark:
        raise BadSetting(
            f"{contract.Variable.DATA_SOURCE} is {source.uri!r}, without ETag and Last-Modified: "
            "with data.shared one is needed"
        )
    folder = JobFolder(shared / mark)
    manifest = data_manifest.read(folder.data_manifest)
    if manifest is not None:
        try:
            _verify(folder, manifest)
        except Failure as failure:
            raise Failure(
                failure.code,
                f"{failure.sentence}; once no job reads {folder.root}, remove it first",
            ) from None
    while manifest is None:
        copy = replace(intended, inputs=())
        if complete := _split(replace(settings, folder=folder), source, objects, copy):
            # Another data job may have been first: then the manifest is that job's.
            manifest = commit.create(complete, folder.data_manifest)
    retry(lambda: commit.sweep(folder, manifest.split), _say)
    content = replace(
        manifest,
        job=settings.job,
        shared=folder.root.relative_to(shared.parents[1]).as_posix(),
        inputs=intended.inputs,
    )
    _write(settings.folder, content.split, content)
    commit.sweep(settings.folder, content.split)
    return content


def _describe_no_data(settings: SplitSettings, brought: tuple[Input, ...]) -> DataManifest:
    """Creates a manifest of empty shards, because the program makes or fetches its own data."""
    manifest = _empty(settings, SourceSummary("", 0, "none"), "none")
    manifest = replace(manifest, seed=None, hold_out=0.0, inputs=brought)
    return _write(settings.folder, settings.run, manifest)


def _verify(folder: JobFolder, manifest: DataManifest) -> None:
    """Verifies every file's checksum. Raises `Failure` for the first file that differs."""
    files = manifest.files()
    started = time.monotonic()
    with ThreadPoolExecutor(4, thread_name_prefix="verify") as pool:
        list(pool.map(lambda file: shard_copy.verify_file(folder.root / file.name, file), files))
    _say(
        f"{folder.data_manifest.name} is complete already: nothing to do ({len(files)} files, "
        f"{sum(file.bytes for file in files):,} bytes, verified in "
        f"{time.monotonic() - started:.1f} s)"
    )


def _is_spoilt(settings: SplitSettings, intended: DataManifest) -> bool:
    """Returns whether this run has completed a different split, or would, because its source or
    settings have changed.
    """
    place = settings.folder.splits / settings.run
    mine = data_manifest.read(place / f"{settings.index}.json") if settings.pods == 1 else None
    return (place / commit.MANIFEST).exists() or (
        mine is not None and not mine.is_same_split(intended)
    )


def _rename_run(settings: SplitSettings) -> SplitSettings:
    """Returns settings with a new run name, as nothing complete is rewritten, for this pod only:
    the others may have ended.
    """
    return replace(settings, pods=1, index=0, run=f"{settings.run}.{os.urandom(4).hex()}")


def _plan(settings: SplitSettings, source: Source, objects: Sequence[Object]) -> DataManifest:
    """Returns the manifest that the split is to have, without its files."""
    form = settings.format
    if form not in FORMATS:
        # A reader with different code yields different records.
        form = f"{form}@{program_copy.digest(settings.reader_folder)[:16]}"
    elif settings.header:
        form = f"{form} behind a header"
    return _empty(settings, summary(source, objects), form)


def _empty(settings: SplitSettings, source: SourceSummary, form: str) -> DataManifest:
    """Returns the manifest of a split without files."""
    return DataManifest(
        source=source,
        format=form,
        seed=settings.seed,
        hold_out=settings.hold_out,
        shards=tuple(Shard(index, ()) for index in range(settings.shards)),
        held_out=(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        records=0,
        job=settings.job,
    )


def _write(folder: JobFolder, split: str, manifest: DataManifest) -> DataManifest:
    """Makes the manifest the job's. A pod that joins a run later finds the split's own, whatever
    the job's newest one says by then.
    """
    for place in (folder.splits / split / commit.MANIFEST, folder.data_manifest):
        durable.write(place, manifest.as_json())
    return manifest


def _complete(settings: SplitSettings, intended: DataManifest) -> tuple[DataManifest | None, bool]:
    """Returns a complete split equal to `intended`, its files verified by index 0, or None, and
    whether one was found damaged.
    """
    damaged = False
    for manifest in commit.complete_splits(settings.folder):
        if not manifest.is_same_split(intended) or not (
            intended.source.etag or manifest.split.partition(".")[0] == settings.run
        ):
            continue
        try:
            if not settings.index:
                _verify(settings.folder, manifest)
            return manifest, False
        except Failure as failure:
            damaged = True
            _say(f"{failure.sentence}: splitting again")
    return None, damaged


def _split(
    settings: SplitSettings, source: Source, objects: Sequence[Object], intended: DataManifest
) -> DataManifest | None:
    place = settings.folder.splits / settings.run
    mine = place / f"{settings.index}.json"
    place.mkdir(parents=True, exist_ok=True)

    def undone(_: Path | None = None) -> bool:
        durable.refresh(place)
        return not mine.exists()

    if undone():
        for old in durable.glob(place, f"{settings.index}.*"):
            if old.is_dir():  # A dead pod's folder: this pod is its replacement.
                commit.remove(old, undone)
        folder = place / f"{settings.index}.{settings.pod}"
        if folder.exists():
            folder = folder.with_name(f"{folder.name}.{os.urandom(4).hex()}")
        folder.mkdir()
        try:
            started = time.monotonic()
            files = slices.write(settings, source, objects, folder, _say)
            shards = tuple(
                Shard(index, tuple(files[str(index)])) for index in range(settings.shards)
            )
            count = sum(shard.records for shard in shards)
            parts.sync_folders(folder)
            manifest = commit.create(
                replace(intended, shards=shards, held_out=tuple(files[HELD_OUT]), records=count),
                mine,
            )
        except BaseException:
            with contextlib.suppress(OSError):
                commit.remove(folder, undone)  # Unless it has just been recorded.
            raise
        held = sum(file.records for file in manifest.held_out)
        _say(
            f"{manifest.records:,} records in {settings.shards} shards, {held:,} held out, in "
            f"{time.monotonic() - started:.1f} s"
        )
    return retry(lambda: commit.complete(place, settings.pods), _say)


def _say(text: str) -> None:
    print(f"split: {text}", flush=True)


def _end_process(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Failure(ExitCode.TERMINATED, "told to stop; the next run begins this slice anew")
