"""Uploads with a progress bar on a terminal and one line a file elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from operations import bucket_upload
from operations.bucket_upload import Address, Progress
from operations.screen import console, say
from operations.side_by_side import side_by_side


@contextmanager
def bar(what: str, total: int) -> Iterator[Progress]:
    """Call what it gives with numbers of bytes; nothing is shown where stderr is no terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(what, markup=False), BarColumn(None), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    screen = console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as shown:
        task = shown.add_task("", total=total)
        yield lambda count: shown.update(task, advance=count)


def upload_file(client: Any, file: Path, address: str) -> None:
    """Uploads one file where the bucket does not hold this content already, and says which it was."""
    from rich.filesize import decimal

    size = file.stat().st_size
    with bar(file.name, size) as progress:
        sent = bucket_upload.put(client, file, Address.parse(address), progress)
    say(f"{file} {'is uploaded to' if sent else 'lies already at'} {address} ({decimal(size)})")


def upload_files(client: Any, path: Path, address: str) -> str:
    """Uploads a file, or a folder's files below `address`; returns the address that a job file would name."""
    from rich.filesize import decimal

    found = bucket_upload.files(path)
    sizes = {file: file.stat().st_size for file, _ in found}
    size = sum(sizes.values())
    with bar(path.name, size) as progress:

        def put(one: tuple[Path, str]) -> bool:
            where = address if path.is_file() else f"{address}/{one[1]}"
            return bucket_upload.put(client, one[0], Address.parse(where), progress)

        small = [one for one in found if sizes[one[0]] <= bucket_upload.PART]
        large = [one for one in found if sizes[one[0]] > bucket_upload.PART]
        # Large files one after the other: of each several parts go at once.
        sent = sum(side_by_side(put, small)) + sum(map(put, large))
    there = len(found) - sent
    say(f"{sent} of {len(found)} files sent ({decimal(size)} in all)" + (f", {there} were there already" if there else ""))
    return address if path.is_file() else f"{address}/"
