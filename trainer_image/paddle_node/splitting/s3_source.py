"""s3://bucket/key, a prefix (every object below it) or a pattern with `*`, read with the pod's own identity.

`AWS_ENDPOINT_URL`, region and credentials (EKS Pod Identity among them) are boto3's own business.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import boto3
import botocore.exceptions
from botocore.config import Config

from paddle_node.contract import ExitCode, Variable
from paddle_node.failure import Failure, SettingError
from paddle_node.splitting.download import Interrupted, Stream, download
from paddle_node.splitting.source import Object, hidden


class S3Source:
    """Objects are downloaded by range, so that an interruption costs only what had not arrived."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._bucket, _, self._key = uri.removeprefix("s3://").partition("/")
        # One attempt a call beyond boto3's own quick ones: the waiting between tries is download's.
        config = Config(retries={"mode": "standard", "max_attempts": 3}, connect_timeout=10, read_timeout=60)
        try:
            self._s3: Any = boto3.client("s3", config=config)
        except botocore.exceptions.BotoCoreError as error:
            self._explain(error)

    def objects(self) -> tuple[Object, ...]:
        """Raises a `Failure` that tells a missing bucket, a missing object and a missing right apart."""
        try:
            found = self._single() or self._listed()
        except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
            self._explain(error)
        if not found:
            raise SettingError(f"{Variable.DATA_SOURCE} is {self._uri}: the bucket holds no object of that name or below it")
        return tuple(sorted(found, key=lambda thing: thing.name))

    def local(self, thing: Object) -> Path | None:
        return None

    def unchanged(self, thing: Object) -> bool:
        return True  # Every range was asked for with the listed ETag.

    def download(self, thing: Object, to: Path, advance: Callable[[int], None]) -> None:
        def open_at(offset: int) -> tuple[int, Stream]:
            ranged = {"Range": f"bytes={offset}-"} if offset else {}
            try:
                answer = self._s3.get_object(Bucket=self._bucket, Key=thing.address, IfMatch=thing.etag, **ranged)
            except botocore.exceptions.ClientError as error:
                if error.response["ResponseMetadata"].get("HTTPStatusCode", 0) >= 500 or _code(error) == "SlowDown":
                    raise Interrupted(str(error)) from None
                self._explain(error)
            except botocore.exceptions.BotoCoreError as error:
                self._interrupt(error)
            return (offset if "ContentRange" in answer else 0), _Body(answer["Body"])

        download(f"s3://{self._bucket}/{thing.address}", thing.size, to, open_at, advance)

    def _single(self) -> list[Object]:
        """The object of exactly this name; nothing when the address means a prefix."""
        if not self._key or self._key.endswith("/") or "*" in self._key:
            return []
        # Listed, not asked for by HEAD: its 403 and 404 come without a message, and without ListBucket look alike.
        answer = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=self._key, MaxKeys=1)
        return [
            self._object(entry, entry["Key"].rpartition("/")[2])
            for entry in answer.get("Contents", [])
            if entry["Key"] == self._key
        ]

    def _listed(self) -> list[Object]:
        pattern = self._key if "*" in self._key else ""
        prefix = self._key.partition("*")[0] if pattern else self._key.rstrip("/") + "/" if self._key.rstrip("/") else ""
        base = prefix[: prefix.rfind("/") + 1]
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
        found = [entry for page in pages for entry in page.get("Contents", [])]
        # Consoles make "folders" as empty objects that end with a slash.
        found = [entry for entry in found if not entry["Key"].endswith("/") and not hidden(entry["Key"].removeprefix(base))]
        if pattern:
            matches = re.compile(fnmatch.translate(pattern)).match
            found = [entry for entry in found if matches(entry["Key"])]
        return [self._object(entry, entry["Key"].removeprefix(base)) for entry in found]

    def _object(self, entry: dict[str, Any], name: str) -> Object:
        return Object(name, int(entry["Size"]), str(entry["ETag"]), str(entry["Key"]))

    def _interrupt(self, error: Exception) -> NoReturn:
        if isinstance(error, botocore.exceptions.NoCredentialsError | botocore.exceptions.PartialCredentialsError):
            self._explain(error)
        raise Interrupted(str(error)) from None

    def _explain(self, error: Exception) -> NoReturn:
        if isinstance(error, botocore.exceptions.ClientError):
            code = _code(error)
            if code == "NoSuchBucket":
                raise SettingError(f"{Variable.DATA_SOURCE} is {self._uri}: there is no bucket {self._bucket}") from None
            if code in ("NoSuchKey", "404", "PreconditionFailed", "412"):
                raise Failure(ExitCode.BAD_DATA, f"{self._uri} changed while it was being read: run the split again") from None
            if code in (
                "AccessDenied",
                "403",
                "AllAccessDisabled",
                "InvalidAccessKeyId",
                "SignatureDoesNotMatch",
                "ExpiredToken",
            ):
                raise Failure(
                    ExitCode.NOT_PERMITTED,
                    f"{self._uri} answered {code}: the data job's role needs s3:ListBucket and s3:GetObject on "
                    f"bucket {self._bucket}, and kms:Decrypt on its key",
                ) from None
            raise Failure(ExitCode.SOURCE_UNREACHABLE, f"{self._uri} cannot be read: {error}") from None
        if isinstance(error, botocore.exceptions.NoCredentialsError | botocore.exceptions.PartialCredentialsError):
            raise Failure(
                ExitCode.NOT_PERMITTED,
                f"{self._uri} needs AWS credentials and this pod has none: its service account has no pod identity association",
            ) from None
        if isinstance(error, botocore.exceptions.ParamValidationError):
            raise SettingError(f"{Variable.DATA_SOURCE} is {self._uri}: {self._bucket!r} is no bucket's name") from None
        if isinstance(error, botocore.exceptions.NoRegionError):
            raise SettingError("AWS_REGION is missing: boto3 cannot tell where the bucket lies") from None
        raise Failure(ExitCode.SOURCE_UNREACHABLE, f"{self._uri} cannot be read: {error}") from None


class _Body:
    """Turns every way in which a connection can break into `Interrupted`."""

    def __init__(self, body: Any) -> None:
        self._body = body

    def read(self, amount: int, /) -> bytes:
        try:
            return bytes(self._body.read(amount))
        except (botocore.exceptions.BotoCoreError, OSError) as error:
            raise Interrupted(f"the connection broke: {error}") from None
        except Exception as error:  # urllib3's own errors, which botocore does not always wrap
            if type(error).__module__.startswith("urllib3"):
                raise Interrupted(f"the connection broke: {error}") from None
            raise

    def close(self) -> None:
        self._body.close()


def _code(error: botocore.exceptions.ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
