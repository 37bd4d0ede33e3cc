"""Files on their way to the bucket: in parallel parts, taken up again where they were interrupted, never sent twice.

Promises: a file whose content lies at its address already is not sent; an interrupted upload goes on with the parts
that are missing, and only with parts of this very content; an object is there whole or as it was before.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from operations.cache import place
from operations.errors import BadInput
from operations.side_by_side import side_by_side
from settings.addresses import without_secrets

CHECKSUM = "paddle-aws-checksum"
"""The object's metadata that says what it holds: an ETag says it for small unencrypted objects only."""
PART = 16 << 20
"""Bytes of a part; S3 takes 10,000 parts, so a large file gets larger ones."""
MOST_PARTS = 10_000

Progress = Callable[[int], None]
"""Called with a number of bytes that are through; from several threads."""


@dataclass(frozen=True)
class Address:
    """s3://bucket/key."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises BadInput for anything else."""
        where = urlsplit(text)
        if where.scheme != "s3" or not where.netloc:
            raise BadInput(f"{without_secrets(text)} is no place in S3: s3://bucket/key is allowed")
        # Not where.path: a key may hold `#` and `?`.
        return cls(where.netloc, text.removeprefix(f"s3://{where.netloc}").lstrip("/"))

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def put(client: Any, file: Path, address: Address, progress: Progress = lambda count: None) -> bool:
    """Uploads a file; False where its content was there already. Raises botocore's errors."""
    content = checksum(file)
    size = file.stat().st_size
    if _present(client, address) == (content, size):
        progress(size)
        return False
    if size <= PART:
        client.put_object(Bucket=address.bucket, Key=address.key, Body=file.read_bytes(), Metadata={CHECKSUM: content})
        progress(size)
        return True
    _in_parts(client, file, address, content, size, progress)
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


def checksum(file: Path) -> str:
    """As the volume's manifests have it: `xxh3_128:<hex>`."""
    from paddle_node.passes import checksum as of_file

    return of_file(file)


def _present(client: Any, address: Address) -> tuple[str, int] | None:
    from botocore.exceptions import ClientError

    try:
        head = client.head_object(Bucket=address.bucket, Key=address.key)
    except ClientError as error:
        if error.response["Error"]["Code"] in ("404", "NoSuchKey", "NotFound"):
            return None
        raise
    return head["Metadata"].get(CHECKSUM, ""), head["ContentLength"]


@dataclass(frozen=True)
class _Part:
    number: int
    offset: int
    size: int


def _parts(size: int) -> tuple[int, list[_Part]]:
    each = max(PART, -(-size // MOST_PARTS))
    return each, [_Part(n + 1, start, min(each, size - start)) for n, start in enumerate(range(0, size, each))]


def _in_parts(client: Any, file: Path, address: Address, content: str, size: int, progress: Progress) -> None:
    each, parts = _parts(size)
    record = place("uploads", address, content, each)
    upload, sent = _unfinished(client, address, record)
    if upload is None:
        begun = client.create_multipart_upload(
            Bucket=address.bucket, Key=address.key, Metadata={CHECKSUM: content}, ChecksumAlgorithm="CRC32"
        )
        upload = str(begun["UploadId"])
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps({"address": str(address), "upload": upload}))

    def send(part: _Part) -> dict[str, Any]:
        with file.open("rb") as stream:
            stream.seek(part.offset)
            body = stream.read(part.size)
        crc = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
        known = sent.get(part.number)
        if known is None or (known["Size"], known.get("ChecksumCRC32", crc)) != (part.size, crc):
            known = client.upload_part(
                Bucket=address.bucket, Key=address.key, UploadId=upload, PartNumber=part.number, Body=body, ChecksumCRC32=crc
            )
        progress(part.size)
        return {"PartNumber": part.number, "ETag": known["ETag"], "ChecksumCRC32": crc}

    # What is sent before a failure stays for the next try.
    done = side_by_side(send, parts)
    client.complete_multipart_upload(Bucket=address.bucket, Key=address.key, UploadId=upload, MultipartUpload={"Parts": done})
    record.unlink(missing_ok=True)


def _unfinished(client: Any, address: Address, record: Path) -> tuple[str | None, dict[int, dict[str, Any]]]:
    """The upload that was interrupted and its parts, if S3 still knows it."""
    from botocore.exceptions import ClientError

    try:
        upload = str(json.loads(record.read_text())["upload"])
        return upload, {part["PartNumber"]: part for part in _listed(client, address, upload)}
    except (OSError, ValueError, KeyError):
        return None, {}
    except ClientError as error:
        if error.response["Error"]["Code"] in ("NoSuchUpload", "404", "NoSuchKey"):
            return None, {}
        raise


def _listed(client: Any, address: Address, upload: str) -> Iterator[dict[str, Any]]:
    pages = client.get_paginator("list_parts").paginate(Bucket=address.bucket, Key=address.key, UploadId=upload)
    for page in pages:
        yield from page.get("Parts", ())
