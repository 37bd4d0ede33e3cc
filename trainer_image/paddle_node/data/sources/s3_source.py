"""s3://bucket/key, a prefix (every object below it) or a pattern with `*`, read with the pod's own identity.

`AWS_ENDPOINT_URL`, region and credentials (EKS Pod Identity among them) are boto3's own business.
"""

import fnmatch
import io
import os
import re
from typing import Any, BinaryIO, NoReturn

import boto3
import botocore.exceptions
import urllib3.exceptions
from botocore.config import Config

from paddle_node.contract import ExitCode, Variable
from paddle_node.data.resumed import Answer, Interrupted, Resumed
from paddle_node.data.sources.registry import BUFFER, Object, changed, hidden, identity, public
from paddle_node.failure import Failure, SettingError

NO_CREDENTIALS = (botocore.exceptions.NoCredentialsError, botocore.exceptions.PartialCredentialsError)


class S3Source:
    """Objects are read by range, each with the ETag that was listed."""

    ranges = True

    def __init__(self, uri: str) -> None:
        self.uri = public(uri)
        self.identity = identity(uri)
        self._bucket, _, self._key = uri.removeprefix("s3://").partition("/")
        self._clients: dict[int, Any] = {}

    @property
    def _s3(self) -> Any:
        """One a process: a connection must not be shared by two that were forked."""
        if os.getpid() not in self._clients:
            # boto3's own tries are quick ones: the waiting is `Resumed`'s.
            config = Config(retries={"mode": "standard", "max_attempts": 3}, connect_timeout=10, read_timeout=60)
            try:
                self._clients[os.getpid()] = boto3.client("s3", config=config)
            except botocore.exceptions.BotoCoreError as error:
                self._explain(error)
        return self._clients[os.getpid()]

    def objects(self) -> list[Object]:
        """Raises a `Failure` that tells a missing bucket, a missing object and a missing right apart."""
        try:
            found = self._single() or self._listed()
        except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
            self._explain(error)
        if not found:
            raise SettingError(f"{Variable.DATA_SOURCE} is {self.uri}: the bucket holds no object of that name or below it")
        return sorted(found, key=lambda thing: thing.name)

    def open(self, thing: Object, begin: int = 0) -> BinaryIO:
        name = f"s3://{self._bucket}/{thing.address}"

        def ask(offset: int) -> Answer:
            ranged = {"Range": f"bytes={offset}-"} if offset else {}
            try:
                answer = self._s3.get_object(Bucket=self._bucket, Key=thing.address, IfMatch=thing.mark, **ranged)
            except botocore.exceptions.ClientError as error:
                if error.response["ResponseMetadata"].get("HTTPStatusCode", 0) >= 500 or _code(error) == "SlowDown":
                    raise Interrupted(str(error)) from None
                if _code(error) in ("NoSuchKey", "404", "PreconditionFailed", "412"):
                    changed(name)
                self._explain(error)
            except NO_CREDENTIALS as error:
                self._explain(error)
            except botocore.exceptions.BotoCoreError as error:
                raise Interrupted(str(error)) from None
            place = re.match(r"bytes (\d+)-", answer.get("ContentRange", ""))
            start = int(place[1]) if place else 0
            return Answer(start, start + int(answer["ContentLength"]), answer["Body"])

        # botocore does not wrap all of urllib3's own errors.
        breaks = (botocore.exceptions.BotoCoreError, urllib3.exceptions.HTTPError, OSError)
        return io.BufferedReader(Resumed(name, thing.size, ask, breaks=breaks, begin=begin), BUFFER)

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

    def _explain(self, error: Exception) -> NoReturn:
        setting = f"{Variable.DATA_SOURCE} is {self.uri}"
        code = _code(error)
        if code == "NoSuchBucket":
            raise SettingError(f"{setting}: there is no bucket {self._bucket}") from None
        if code in ("AccessDenied", "403", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"):
            raise Failure(
                ExitCode.NOT_PERMITTED,
                f"{self.uri} answered {code}: the data job's role needs s3:ListBucket and s3:GetObject on "
                f"bucket {self._bucket}, and kms:Decrypt on its key",
            ) from None
        if isinstance(error, NO_CREDENTIALS):
            raise Failure(
                ExitCode.NOT_PERMITTED,
                f"{self.uri} needs AWS credentials and this pod has none: its service account has no pod identity association",
            ) from None
        if isinstance(error, botocore.exceptions.ParamValidationError):
            raise SettingError(f"{setting}: {self._bucket!r} is no bucket's name") from None
        if isinstance(error, botocore.exceptions.NoRegionError):
            raise SettingError("AWS_REGION is missing: boto3 cannot tell where the bucket lies") from None
        raise Failure(ExitCode.SOURCE_UNREACHABLE, f"{self.uri} cannot be read: {error}") from None


def _code(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, botocore.exceptions.ClientError) else ""
