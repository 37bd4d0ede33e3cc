"""Files on their way to the bucket: in parallel parts, continued where they were interrupted, never sent twice.

Not by boto3's transfer manager: it restarts an interrupted upload, and cannot tell whether the content is there already.
"""

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, TypeVar
from urllib.parse import urlsplit

from paddle_node.training.passes import checksum

from operations.errors import BadInput
from operations.screen import console, say
from settings.addresses import without_secrets
from settings.file import place

CHECKSUM = "paddle-aws-checksum"
"""The object's metadata that says what it holds: an ETag says it for small unencrypted objects only."""
PART = 16 << 20
"""Bytes of a part; S3 takes 10,000 parts, so a large file gets larger ones."""
MOST_PARTS = 10_000
AT_ONCE = 8
"""Transfers side by side."""

Given = TypeVar("Given")
Made = TypeVar("Made")
Progress = Callable[[int], None]
"""Called with a number of bytes that are through; from several threads."""


def object_of(address: str) -> dict[str, str]:
    """Bucket and Key of s3://bucket/key, for boto3's calls. Raises BadInput for anything else."""
    where = urlsplit(address)
    if where.scheme != "s3" or not where.netloc:
        raise BadInput(f"{without_secrets(address)} is no place in S3: s3://bucket/key is allowed")
    # Not where.path: a key may hold `#` and `?`.
    return {"Bucket": where.netloc, "Key": address.removeprefix(f"s3://{where.netloc}").lstrip("/")}


def put(client: Any, file: Path, address: str, progress: Progress = lambda count: None) -> bool:
    """Uploads a file; False where its content was there already. Raises botocore's errors."""
    content, size, there = checksum(file), file.stat().st_size, object_of(address)
    if _present(client, there) == (content, size):
        progress(size)
        return False
    if size <= PART:
        client.put_object(**there, Body=file.read_bytes(), Metadata={CHECKSUM: content})
        progress(size)
    else:
        _in_parts(client, file, there, content, size, progress)
    return True


def files(path: Path) -> list[tuple[Path, str]]:
    """A file, or a folder's files, each with its name below the address; hidden files and caches stay here."""
    if path.is_file():
        return [(path, path.name)]
    if not path.is_dir():
        raise BadInput(f"{path} does not exist: give a file or a folder")
    found = [
        (file, file.relative_to(path).as_posix())
        for file in sorted(path.rglob("*"))
        if file.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in file.relative_to(path).parts)
    ]
    if not found:
        raise BadInput(f"{path} holds no file")
    return found


def _present(client: Any, there: dict[str, str]) -> tuple[str, int] | None:
    from botocore.exceptions import ClientError

    try:
        head = client.head_object(**there)
    except ClientError as error:
        if error.response["Error"]["Code"] in ("404", "NoSuchKey", "NotFound"):
            return None
        raise
    return head["Metadata"].get(CHECKSUM, ""), head["ContentLength"]


def _in_parts(client: Any, file: Path, there: dict[str, str], content: str, size: int, progress: Progress) -> None:
    each = max(PART, -(-size // MOST_PARTS))
    record = place("uploads", *there.values(), content, each)
    upload, sent = _unfinished(client, there, record)
    if upload is None:
        begun = client.create_multipart_upload(**there, Metadata={CHECKSUM: content}, ChecksumAlgorithm="CRC32")
        upload = str(begun["UploadId"])
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps({**there, "upload": upload}))

    def send(number: int) -> dict[str, Any]:
        with file.open("rb") as stream:
            stream.seek((number - 1) * each)
            body = stream.read(each)
        crc = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
        known = sent.get(number)
        if known is None or (known["Size"], known.get("ChecksumCRC32", crc)) != (len(body), crc):
            known = client.upload_part(**there, UploadId=upload, PartNumber=number, Body=body, ChecksumCRC32=crc)
        progress(len(body))
        return {"PartNumber": number, "ETag": known["ETag"], "ChecksumCRC32": crc}

    # What is sent before a failure stays for the next try.
    done = side_by_side(send, range(1, -(-size // each) + 1))
    client.complete_multipart_upload(**there, UploadId=upload, MultipartUpload={"Parts": done})
    record.unlink(missing_ok=True)


def _unfinished(client: Any, there: dict[str, str], record: Path) -> tuple[str | None, dict[int, dict[str, Any]]]:
    """The upload that was interrupted and its parts, if S3 still knows it."""
    try:
        upload = str(json.loads(record.read_text())["upload"])
        pages = client.get_paginator("list_parts").paginate(**there, UploadId=upload)
        return upload, {part["PartNumber"]: part for part in pages.search("Parts[]") if part}
    except (OSError, ValueError, KeyError, client.exceptions.NoSuchUpload):
        return None, {}


def side_by_side(act: Callable[[Given], Made], given: Iterable[Given], stop: Event | None = None) -> list[Made]:
    """`act` on each, several at once; results in the order of what was given.

    After the first failure, or Ctrl-C, nothing more is begun, and `stop` is set for those that are under way.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            begun = [pool.submit(act, one) for one in given]
            for ended in wait(begun, return_when=FIRST_EXCEPTION).done:
                ended.result()
            return [each.result() for each in begun]
        except BaseException:
            if stop is not None:
                stop.set()
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def bar(what: str, total: int) -> Iterator[Progress]:
    """Call what it gives with numbers of bytes; nothing is shown where stderr is no terminal."""
    from rich import progress

    timing = (progress.DownloadColumn(), progress.TransferSpeedColumn(), progress.TimeRemainingColumn())
    columns = (progress.TextColumn(what, markup=False), progress.BarColumn(None), *timing)
    screen = console(stderr=True)
    with progress.Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as shown:
        task = shown.add_task("", total=total)
        yield lambda count: shown.update(task, advance=count)


def upload_files(client: Any, path: Path, address: str) -> str:
    """Uploads a file, or a folder's files below `address`; returns the address that a job file would name."""
    from rich.filesize import decimal

    found = files(path)
    sizes = {file: file.stat().st_size for file, _ in found}
    size = sum(sizes.values())
    with bar(path.name, size) as progress:

        def send(one: tuple[Path, str]) -> bool:
            where = address if path.is_file() else f"{address}/{one[1]}"
            return put(client, one[0], where, progress)

        small = [one for one in found if sizes[one[0]] <= PART]
        large = [one for one in found if sizes[one[0]] > PART]
        # Large files one after the other: of each several parts go at once.
        sent = sum(side_by_side(send, small)) + sum(map(send, large))
    there = len(found) - sent
    if path.is_file():
        say(f"{path} {'is uploaded to' if sent else 'lies already at'} {address} ({decimal(size)})")
        return address
    say(f"{sent} of {len(found)} files sent ({decimal(size)} in all)" + (f", {there} were there already" if there else ""))
    return f"{address}/"
