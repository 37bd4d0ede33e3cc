"""One https:// address, resumed by range where the server knows ranges, from the start where it does not."""

from __future__ import annotations

import http.client
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from paddle_node.contract import ExitCode, Variable
from paddle_node.failure import Failure, SettingError
from paddle_node.splitting import download
from paddle_node.splitting.download import Interrupted, Stream
from paddle_node.splitting.source import Object, public

TIMEOUT = 60.0
"""Seconds without a byte after which a connection counts as cut."""


class HttpSource:
    """A single object. Certificates are verified, proxies are taken from the environment."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._name = public(uri)

    def objects(self) -> tuple[Object, ...]:
        """Asks for the first byte: addresses that are signed for GET refuse HEAD."""
        tries = 0
        while True:
            try:
                with self._ask({"Range": "bytes=0-0"}) as response:
                    return (Object(self._file_name(), _size(response), _mark(response), self._uri),)
            except Interrupted as error:
                tries += 1
                if tries >= download.TRIES:
                    raise Failure(
                        ExitCode.SOURCE_UNREACHABLE, f"{self._name} cannot be reached after {tries} tries: {error}"
                    ) from None
                time.sleep(download.FIRST_WAIT * 2 ** (tries - 1))

    def local(self, thing: Object) -> Path | None:
        return None

    def unchanged(self, thing: Object) -> bool:
        return True  # Each answer of the download was compared.

    def download(self, thing: Object, to: Path, advance: Callable[[int], None]) -> None:
        def open_at(offset: int) -> tuple[int, Stream]:
            if not thing.etag:
                offset = 0  # Nothing tells whether the rest would be of the same file.
            response = self._ask({"Range": f"bytes={offset}-"} if offset else {})
            if _mark(response) != thing.etag:
                response.close()
                raise Failure(ExitCode.BAD_DATA, f"{self._name} changed while it was being read: run the split again")
            return _start(response, offset), _Body(response)

        download.download(self._name, thing.size, to, open_at, advance)

    def _ask(self, headers: dict[str, str]) -> http.client.HTTPResponse:
        request = urllib.request.Request(
            self._uri, headers={"Accept-Encoding": "identity", "User-Agent": "paddle-aws", **headers}
        )
        try:
            response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416 and headers.get("Range") == "bytes=0-0":
                return self._ask({})  # An empty file has no first byte.
            if error.code in (401, 403):
                raise Failure(
                    ExitCode.NOT_PERMITTED,
                    f"{self._name} answered {error.code} {error.reason}: it must be readable without logging in",
                ) from None
            if error.code < 500 and error.code not in (408, 429):
                raise SettingError(
                    f"{Variable.DATA_SOURCE} is {self._name}, which answered {error.code} {error.reason}"
                ) from None
            raise Interrupted(f"it answered {error.code} {error.reason}") from None
        except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise SettingError(
                    f"{Variable.DATA_SOURCE} is {self._name}, whose certificate is not to be trusted: {reason.verify_message}"
                ) from None
            raise Interrupted(f"{reason}") from None
        return response

    def _file_name(self) -> str:
        return unquote(urlsplit(self._uri).path.rpartition("/")[2]) or "source"


class _Body:
    """Turns every way in which a connection can break into `Interrupted`."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def read(self, amount: int, /) -> bytes:
        try:
            return self._response.read(amount)
        except (OSError, http.client.HTTPException) as error:
            raise Interrupted(f"the connection broke: {error or type(error).__name__}") from None

    def close(self) -> None:
        self._response.close()


def _size(response: Any) -> int | None:
    match = re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers.get("Content-Range", ""))
    if response.status == 206 and match:
        return int(match[1])
    length = response.headers.get("Content-Length", "")
    return int(length) if response.status == 200 and length.isdigit() else None


def _start(response: Any, asked: int) -> int:
    """Where the answer begins; a server need not heed the range that it was asked for."""
    if response.status != 206:
        return 0
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else asked


def _mark(response: Any) -> str:
    """ETag, else the time of change, else nothing: then only the size can tell a change."""
    return str(response.headers.get("ETag") or response.headers.get("Last-Modified") or "")
