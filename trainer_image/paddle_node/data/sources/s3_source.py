"""Reads s3://bucket/key, a prefix (every object below it) or a pattern with `*`, with the pod's own
identity.

boto3 handles `AWS_ENDPOINT_URL`, region and credentials. It retries requests, but does not resume a
body: `ResumingReader` does that.
"""

import fnmatch
import functools
import io
import re
from typing import Any, BinaryIO, NoReturn

import boto3
import botocore.exceptions
import urllib3.exceptions
from botocore.config import Config

from paddle_node.contract import ExitCode
from paddle_node.data.resuming_reader import Interrupted, RangeAnswer, ResumingReader
from paddle_node.data.sources.source import BUFFER, Object, Source, is_hidden, refuse_changed
from paddle_node.failure import BadSetting, Failure

ERRORS = (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError)
NO_CREDENTIALS = (
    botocore.exceptions.NoCredentialsError,
    botocore.exceptions.PartialCredentialsError,
)
REFUSALS = (
    "AccessDenied", "403", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch",
    "ExpiredToken",
)  # fmt: skip


class S3Source(Source):
    """Reads objects by range, each with the ETag that was listed."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._bucket, _, self._key = uri.removeprefix("s3://").partition("/")

    @functools.cached_property
    def _s3(self) -> Any:
        config = Config(
            retries={"mode": "standard", "max_attempts": 3}, connect_timeout=10, read_timeout=60
        )
        try:
            return boto3.client("s3", config=config)
        except botocore.exceptions.BotoCoreError as error:
            self._explain(error)

    def objects(self) -> list[Object]:
        try:
            objects = self._list_single() or self._list_objects()
        except ERRORS as error:
            self._explain(error)
        if not objects:
            self.refuse(": the bucket holds no object of that name or below it")
        return sorted(objects, key=lambda thing: thing.name)

    def open(self, thing: Object, begin: int = 0) -> BinaryIO:
        name = f"s3://{self._bucket}/{thing.address}"

        def ask(offset: int) -> RangeAnswer:
            ranged = {"Range": f"bytes={offset}-"} if offset else {}
            try:
                answer = self._s3.get_object(
                    Bucket=self._bucket, Key=thing.address, IfMatch=thing.mark, **ranged
                )
            except ERRORS as error:
                response = getattr(error, "response", {})
                answered = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
                if _code(error) in ("NoSuchKey", "404", "PreconditionFailed", "412"):
                    refuse_changed(name)
                if isinstance(error, NO_CREDENTIALS) or (
                    _code(error) not in ("", "SlowDown") and answered < 500
                ):
                    self._explain(error)
                raise Interrupted(str(error)) from None
            place = re.match(r"bytes (\d+)-", answer.get("ContentRange", ""))
            start = int(place[1]) if place else 0
            return RangeAnswer(start, start + int(answer["ContentLength"]), answer["Body"])

        # botocore does not wrap all of urllib3's own errors.
        breaks = (botocore.exceptions.BotoCoreError, urllib3.exceptions.HTTPError, OSError)
        return io.BufferedReader(ResumingReader(name, thing, ask, breaks, begin), BUFFER)

    def _list_single(self) -> list[Object]:
        """Returns the object of exactly this name, or nothing if the address means a prefix."""
        if not self._key or self._key.endswith("/") or "*" in self._key:
            return []
        # Lists instead of using HEAD: without ListBucket, its 403 and 404 look alike, and neither
        # has a message.
        answer = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=self._key, MaxKeys=1)
        entries = [entry for entry in answer.get("Contents", []) if entry["Key"] == self._key]
        return [_object(entry, self._key.rpartition("/")[2]) for entry in entries]

    def _list_objects(self) -> list[Object]:
        prefix, star, _ = self._key.partition("*")
        if not star:
            prefix = prefix.rstrip("/") + "/" if prefix.rstrip("/") else ""
        base = prefix[: prefix.rfind("/") + 1]
        matches = re.compile(fnmatch.translate(self._key) if star else "").match
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix
        )
        return [
            _object(entry, key.removeprefix(base))
            for page in pages
            for entry in page.get("Contents", [])
            # Consoles create "folders" as empty objects whose keys end with a slash.
            if matches(key := entry["Key"])
            and not key.endswith("/")
            and not is_hidden(key.removeprefix(base))
        ]

    def _explain(self, error: Exception) -> NoReturn:
        if (code := _code(error)) == "NoSuchBucket":
            self.refuse(f": there is no bucket {self._bucket}")
        if isinstance(error, botocore.exceptions.ParamValidationError):
            self.refuse(f": {self._bucket!r} is not a bucket name")
        if isinstance(error, botocore.exceptions.NoRegionError):
            raise BadSetting(
                "AWS_REGION is missing: boto3 cannot tell where the bucket lies"
            ) from None
        if code in REFUSALS:
            needed = (
                f"s3:ListBucket and s3:GetObject on bucket {self._bucket}, and kms:Decrypt on "
                "its key"
            )
            raise Failure(
                ExitCode.NOT_PERMITTED,
                f"{self.uri} answered {code}: the data job's role needs {needed}",
            ) from None
        if isinstance(error, NO_CREDENTIALS):
            needed = (
                "needs AWS credentials and this pod has none: its service account has no pod "
                "identity association"
            )
            raise Failure(ExitCode.NOT_PERMITTED, f"{self.uri} {needed}") from None
        raise Failure(ExitCode.SOURCE_UNREACHABLE, f"{self.uri} cannot be read: {error}") from None


def _object(entry: dict[str, Any], name: str) -> Object:
    return Object(name, int(entry["Size"]), str(entry["ETag"]), str(entry["Key"]))


def _code(error: Exception) -> str:
    return (
        str(error.response.get("Error", {}).get("Code", ""))
        if isinstance(error, botocore.exceptions.ClientError)
        else ""
    )
