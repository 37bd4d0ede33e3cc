"""The data job: a source becomes N shards of equal record counts, and rows held out for evaluation, on the volume.

Promises: `data-manifest.json` is written last, so its presence means complete; the same source, seed and N give the
same bytes; running again changes nothing; a failure ends with one sentence and leaves what was complete as it was.
"""

from __future__ import annotations

import errno
import gzip
import os
import random
import shutil
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import xxhash

from paddle_node import contract, data_manifest
from paddle_node.contract import ExitCode, Variable
from paddle_node.data_manifest import DataFile, DataManifest, Shard, Source
from paddle_node.failure import Failure, SettingError
from paddle_node.program_copy import copy_program
from paddle_node.split_settings import SplitSettings


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Runs the data job; returns the exit code, after one sentence on stderr when it is not 0."""
    try:
        split(SplitSettings.from_environment(environ), environ)
    except Failure as failure:
        print(f"split: {failure.sentence}", file=sys.stderr)
        return failure.code
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        print(f"split: {error.filename or 'the volume'}: {error.strerror}", file=sys.stderr)
        return ExitCode.VOLUME_FULL if full else 1
    return ExitCode.DONE


def split(settings: SplitSettings, environ: Mapping[str, str]) -> DataManifest:
    """Splits unless the manifest says that this very split is complete; returns the manifest."""
    folder = settings.folder
    if settings.program_from:
        copied = copy_program(contract.path(settings.program_from, dict(environ)), folder.program(settings.program))
        print(f"split: program {settings.program} {'copied' if copied else 'is there already'}", flush=True)
    if settings.format != "lines":
        raise SettingError(f"{Variable.DATA_FORMAT} is {settings.format!r}: only lines is supported yet")
    content, source = _fetch(settings, environ)
    old = data_manifest.read(folder.data_manifest)
    if old and (old.source, old.seed, old.hold_out, len(old.shards)) == (
        source,
        settings.seed,
        settings.hold_out,
        settings.shards,
    ):
        print(f"split: {folder.data_manifest} is complete already: nothing to do", flush=True)
        return old
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    records = content.split(b"\n")
    if records[-1] == b"":
        records.pop()
    if len(records) < settings.shards:
        raise Failure(ExitCode.BAD_DATA, f"{settings.source} has {len(records)} records: too few for {settings.shards} shards")
    if settings.seed is not None:
        random.Random(settings.seed).shuffle(records)
    kept, held = _hold_out(records, settings.hold_out)
    work = folder.root / f".split.{os.getpid()}.tmp"
    try:
        work.mkdir(parents=True)
        shards = []
        for index in range(settings.shards):
            first, last = index * len(kept) // settings.shards, (index + 1) * len(kept) // settings.shards
            shards.append(Shard(index, (_write(work / f"{index}" / "part-00000", kept[first:last]),)))
        held_out = (_write(work / "held-out" / "part-00000", held),) if held else ()
        folder.data_manifest.unlink(missing_ok=True)
        for stale in (*folder.root.glob("[0-9]*/data"), folder.held_out):
            shutil.rmtree(stale, ignore_errors=True)
        for index in range(settings.shards):
            folder.shard(index).parent.mkdir(exist_ok=True)
            (work / f"{index}").rename(folder.shard(index))
        if held:
            folder.held_out.parent.mkdir(exist_ok=True)
            (work / "held-out").rename(folder.held_out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    manifest = DataManifest(
        source=source,
        format=settings.format,
        seed=settings.seed,
        hold_out=settings.hold_out,
        shards=tuple(shards),
        held_out=held_out,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        records=len(kept),
    )
    data_manifest.write(manifest, folder.data_manifest)
    print(f"split: {manifest.records} records into {settings.shards} shards, {len(held)} held out", flush=True)
    return manifest


def _hold_out(records: list[bytes], share: float) -> tuple[list[bytes], list[bytes]]:
    wanted = round(len(records) * share)
    picked = {(2 * number + 1) * len(records) // (2 * wanted) for number in range(wanted)}
    kept = [record for index, record in enumerate(records) if index not in picked]
    return kept, [record for index, record in enumerate(records) if index in picked]


def _write(path: Path, records: Sequence[bytes]) -> DataFile:
    path.parent.mkdir()
    content = b"".join(record + b"\n" for record in records)
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    checksum = f"{data_manifest.CHECKSUM}:{xxhash.xxh3_128(content).hexdigest()}"
    return DataFile(path.name, len(records), len(content), checksum)


def _fetch(settings: SplitSettings, environ: Mapping[str, str]) -> tuple[bytes, Source]:
    uri = settings.source
    started = time.monotonic()
    if uri.startswith("s3://"):
        import boto3

        bucket, _, key = uri.removeprefix("s3://").partition("/")
        answer = boto3.client("s3").get_object(Bucket=bucket, Key=key)
        content, etag = answer["Body"].read(), answer["ETag"]
    elif "://" in uri:
        with urllib.request.urlopen(uri, timeout=60) as response:
            content, etag = response.read(), response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
    else:
        path = contract.path(uri, dict(environ))
        try:
            content = path.read_bytes()
        except OSError as error:
            raise SettingError(f"{Variable.DATA_SOURCE} is {uri!r}: {error.strerror}") from None
        etag = f"mtime-{path.stat().st_mtime_ns}"
    print(f"split: read {len(content):,} bytes of {uri} in {time.monotonic() - started:.1f} s", flush=True)
    return content, Source(uri, len(content), etag)
