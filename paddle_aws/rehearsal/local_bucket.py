"""A bucket without an account: the part of Amazon S3's API that reads, over files of this machine.

Where it lists objects (ListObjectsV2) and reads them (GetObject, with Range and If-Match), a pod's
boto3 sees no difference from S3. It copies nothing and accepts no writes. It answers only requests
with its own access key, which is random, and none of a web page. Limits: it verifies no signature,
and refuses every other request with 501.
https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html
"""

import os
import re
import secrets
from contextlib import AbstractContextManager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from paddle_aws.rehearsal.pods.http_server import HTTPServer

BLOCK = 1 << 20
"""Bytes that an answer sends at once."""
PAGE = 1000
"""Objects in one answer of a list, as in S3."""


OUR_HOST = re.compile(r"(localhost|127\.0\.0\.1):\d+")
"""Names of this machine that a pod's boto3 uses."""


class LocalBucket(AbstractContextManager["LocalBucket"]):
    """Serves files at 127.0.0.1 while a `with` block lasts."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, Path]] = {}
        bucket = self
        self._key = f"AKIA{secrets.token_hex(8).upper()}"

        class Handler(_Handler):
            objects = bucket._objects
            access_key = bucket._key

        self._server = HTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> "LocalBucket":
        self._server.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.stop()

    @property
    def environment(self) -> dict[str, str]:
        """The AWS settings of a client of this bucket."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_ACCESS_KEY_ID": self._key,
            "AWS_SECRET_ACCESS_KEY": "not verified",
            "AWS_REGION": "us-west-2",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def serve(self, path: Path, address: str) -> None:
        """Serves a file at the address s3://bucket/key, or each file of a folder below it.

        A key that ends with `/` or has a `*` is a prefix: its last part is left to the files.
        """
        name, _, key = address.removeprefix("s3://").partition("/")
        prefix = key.partition("*")[0].rpartition("/")[0]
        files = self._objects.setdefault(name, {})
        if path.is_file():
            below = key.endswith("/") or "*" in key
            files[f"{prefix}/{path.name}".lstrip("/") if below or not key else key] = path
            return
        top = prefix if key.endswith("/") or "*" in key else key
        for file in sorted(path.rglob("*")):
            if file.is_file():
                files[f"{top}/{file.relative_to(path).as_posix()}".lstrip("/")] = file


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: dict[str, dict[str, Path]]
    """The files by bucket and key."""
    access_key: str
    """The only one that is answered."""

    def parse_request(self) -> bool:
        """Also refuses whoever lacks the access key, and what a web page asks for."""
        if not super().parse_request():
            return False
        given = self.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0]
        ours = secrets.compare_digest(given.encode(), self.access_key.encode())
        host = OUR_HOST.fullmatch(self.headers.get("Host", ""))
        if ours and host and "Origin" not in self.headers:
            return True
        self.close_connection = True
        self._refuse(403, "AccessDenied", "this bucket is a rehearsal's own")
        return False

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: the data job reports what it reads."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        files = self.objects.get(bucket)
        if files is None:
            return self._refuse(404, "NoSuchBucket", f"this machine serves no bucket {bucket}")
        if not key:
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            return self._list(bucket, files, query)
        try:
            self._send(files[key])
        except (KeyError, FileNotFoundError):
            self._refuse(404, "NoSuchKey", f"this machine serves no {key}")

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        self.close_connection = True
        self._refuse(501, "NotImplemented", "this bucket can only be read")

    do_POST = do_DELETE = do_PUT

    def _list(self, bucket: str, files: dict[str, Path], query: dict[str, str]) -> None:
        prefix, after = query.get("prefix", ""), unquote(query.get("continuation-token", ""))
        size = min(int(query.get("max-keys", PAGE)), PAGE)
        keys = sorted(key for key in files if key.startswith(prefix) and key > after)
        page = keys[:size]
        # XML has no control characters; botocore asks for keys in the form of addresses.
        encoded = query.get("encoding-type") == "url"
        write = quote if encoded else escape
        entries = []
        for key in page:
            try:
                facts = files[key].stat()
            except OSError:
                continue  # The file has been removed since the listing.
            entries.append(
                f"<Contents><Key>{write(key)}</Key><Size>{facts.st_size}</Size>"
                f"<ETag>{escape(_etag(facts))}</ETag>"
                "<LastModified>1970-01-01T00:00:00.000Z</LastModified></Contents>"
            )
        truncated = len(keys) > len(page)
        next_token = (
            f"<NextContinuationToken>{quote(page[-1])}</NextContinuationToken>" if truncated else ""
        )
        self._answer(
            200,
            f"<ListBucketResult><Name>{escape(bucket)}</Name><KeyCount>{len(entries)}</KeyCount>"
            f"{'<EncodingType>url</EncodingType>' * encoded}"
            f"<IsTruncated>{str(truncated).lower()}</IsTruncated>{next_token}{''.join(entries)}"
            "</ListBucketResult>",
        )

    def _send(self, file: Path) -> None:
        with file.open("rb") as stream:
            facts = os.fstat(stream.fileno())
            tag = self.headers.get("If-Match")
            if tag not in (None, _etag(facts)):
                return self._refuse(412, "PreconditionFailed", f"{file} has changed")
            first, last = 0, facts.st_size - 1
            bounds = (self.headers.get("Range") or "").removeprefix("bytes=").partition("-")
            if bounds[1]:
                first, last = int(bounds[0]), min(int(bounds[2] or last), last)
                if first > last:
                    return self._refuse(416, "InvalidRange", f"{file} has {facts.st_size} bytes")
            self.send_response(206 if bounds[1] else 200)
            self.send_header("Content-Length", str(last - first + 1))
            if bounds[1]:
                self.send_header("Content-Range", f"bytes {first}-{last}/{facts.st_size}")
            self.send_header("ETag", _etag(facts))
            self.send_header("Last-Modified", formatdate(facts.st_mtime, usegmt=True))
            self.end_headers()
            stream.seek(first)
            rest = last - first + 1 if self.command == "GET" else 0
            while rest and (block := stream.read(min(BLOCK, rest))):
                self.wfile.write(block)
                rest -= len(block)
            if rest:
                self.close_connection = True  # The file became shorter while it was read.

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._answer(
            status, f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
        )

    def _answer(self, status: int, document: str) -> None:
        body = f'<?xml version="1.0" encoding="UTF-8"?>{document}'.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _etag(facts: os.stat_result) -> str:
    return f'"{facts.st_size:x}-{facts.st_mtime_ns:x}"'
