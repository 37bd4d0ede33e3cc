"""Uploads files to the bucket with boto3's transfer manager, except those that the bucket already
holds, by their checksums.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from paddle_node.volume.passes import checksum

from paddle_aws.operations.errors import BadInput, Failed
from paddle_aws.operations.screen import console, say
from paddle_settings.addresses import hide_secrets

CHECKSUM = "paddle-aws-checksum"
"""The metadata key for the checksum of an object's content: an ETag is one for small unencrypted
objects only.
"""
AT_ONCE = 8
"""Number of parallel transfers."""

T = TypeVar("T")
Progress = Callable[[int], None]
"""Called with a number of bytes that are done, from several threads."""


def parse_object(address: str) -> dict[str, str]:
    """Returns Bucket and Key of s3://bucket/key, for boto3's calls. Raises BadInput for anything
    else.
    """
    where = urlsplit(address)
    if where.scheme != "s3" or not where.netloc:
        raise BadInput(f"{hide_secrets(address)} is not an S3 address: s3://bucket/key is allowed")
    # Not where.path: a key may hold `#` and `?`.
    return {"Bucket": where.netloc, "Key": address.removeprefix(f"s3://{where.netloc}").lstrip("/")}


def files(path: Path) -> list[tuple[Path, str]]:
    """Returns a file, or a folder's files, each with its name below the address; leaves out hidden
    files and caches.
    """
    if path.is_file():
        return [(path, path.name)]
    if not path.is_dir():
        raise BadInput(f"{path} does not exist: give a file or a folder")
    names = {file: file.relative_to(path) for file in sorted(path.rglob("*")) if file.is_file()}
    pairs = [
        (file, name.as_posix())
        for file, name in names.items()
        if not any(part.startswith(".") or part == "__pycache__" for part in name.parts)
    ]
    if not pairs:
        raise BadInput(f"{path} holds no file")
    return pairs


def _read_head(client: Any, there: dict[str, str]) -> tuple[str, int] | None:
    from botocore.exceptions import ClientError

    try:
        head = client.head_object(**there)
    except ClientError as error:
        if error.response["Error"]["Code"] in ("404", "NoSuchKey", "NotFound"):
            return None
        raise
    return head["Metadata"].get(CHECKSUM, ""), head["ContentLength"]


@contextmanager
def bar(what: str, total: int) -> Iterator[Progress]:
    """Shows a progress bar, and yields the function that advances it by bytes. Shows nothing if
    stderr is no terminal.
    """
    from rich import progress

    timing = (
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    columns = (progress.TextColumn(what, markup=False), progress.BarColumn(None), *timing)
    screen = console(stderr=True)
    with progress.Progress(
        *columns, console=screen, transient=True, disable=not screen.is_terminal
    ) as shown:
        task = shown.add_task("", total=total)
        yield lambda count: shown.update(task, advance=count)


def put_in_parallel(
    put: Callable[[T], bool], items: Sequence[T], stop: Callable[[], object]
) -> int:
    """Runs `put` on items in parallel; returns how many it sent. After a failure or Ctrl-C, it
    starts no further item and calls `stop`.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            transfers = [pool.submit(put, item) for item in items]
            return sum(transfer.result() for transfer in as_completed(transfers))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
            raise


def upload_files(client: Any, path: Path, address: str) -> str:
    """Uploads a file, or a folder's files below `address`; returns the address that a job file
    would name.
    """
    from boto3.s3.transfer import ProgressCallbackInvoker, TransferConfig, create_transfer_manager
    from rich.filesize import decimal

    places = {
        file: parse_object(address if path.is_file() else f"{address}/{name}")
        for file, name in files(path)
    }
    size = sum(file.stat().st_size for file in places)

    def put(file: Path) -> bool:
        before, content = file.stat(), checksum(file)
        if _read_head(client, places[file]) == (content, before.st_size):
            progress(before.st_size)
            return False
        manager.upload(
            str(file), *places[file].values(), {"Metadata": {CHECKSUM: content}}, subscribers
        ).result()
        after = file.stat()
        if (after.st_mtime_ns, after.st_size) != (before.st_mtime_ns, before.st_size):
            raise Failed(f"{file} changed while it was read: upload it again")
        return True

    # The manager cancels transfers under way when it exits with an exception.
    with (
        bar(path.name, size) as progress,
        create_transfer_manager(client, TransferConfig()) as manager,
    ):
        subscribers = [ProgressCallbackInvoker(progress)]
        sent = put_in_parallel(put, list(places), lambda: manager.__exit__(*sys.exc_info()))
    there = len(places) - sent
    if path.is_file():
        say(f"{path} {'is uploaded to' if sent else 'is already at'} {address} ({decimal(size)})")
        return address
    rest = f", {there} were there already" if there else ""
    say(f"{sent} of {len(places)} files sent ({decimal(size)} in all){rest}")
    return f"{address}/"
