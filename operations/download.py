"""One file over HTTPS: resumed where it was cut, checked, and there whole or not at all.

Promises: `download` leaves a file at its place only if it has the SHA-256 that was asked for; what came before a cut is used
again, by this run and the next; every failure is one sentence. Plain http is refused, loopback apart.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from operations.errors import BadInput, Failed, Unreachable
from settings.addresses import without_secrets

ATTEMPTS = 5
PAUSE = 1.0
"""Seconds before the second attempt, doubled before each further one."""
TIMEOUT = 30.0
CHUNK = 1 << 20


class _HttpsOnly(urllib.request.HTTPRedirectHandler):
    """A redirect may not leave HTTPS."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        secure(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """For `redirection`: where it would lead is the answer."""

    def redirect_request(self, *_: Any) -> None:
        return None


def secure(url: str) -> None:
    """BadInput for an address that anyone on the way could answer."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")):
        raise BadInput(f"{without_secrets(url)} is not an https address: hashes that come over anything else prove nothing")


def text(url: str) -> str:
    """A short document."""
    return content(url).decode()


def content(url: str) -> bytes:
    """A short file."""
    for last in _attempts():
        with _explained(url, last), _open(url, {}) as answer:
            read: bytes = answer.read()
            return read
    raise AssertionError


def redirection(url: str) -> str:
    """Where an address leads, without going there; its own address if it leads nowhere."""
    secure(url)
    opener = urllib.request.build_opener(_NoRedirect)
    for last in _attempts():
        with _explained(url, last):
            try:
                with opener.open(url, timeout=TIMEOUT):
                    return url
            except urllib.error.HTTPError as answer:
                if 300 <= answer.code < 400 and answer.headers.get("Location"):
                    answer.close()
                    return str(answer.headers["Location"])
                raise
    raise AssertionError


def download(url: str, target: Path, sha256: str) -> None:
    """The file at `url` to `target`, unless it is there already."""
    if target.is_file() and _sha256(target) == sha256:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    for last in _attempts():
        with _explained(url, last):
            _rest(url, part)
            break
    if _sha256(part) != sha256:
        part.unlink()
        raise Failed(
            f"{without_secrets(url)} has not the SHA-256 that its publisher lists ({sha256}): not kept, try again or ask them"
        )
    part.replace(target)


def _rest(url: str, part: Path) -> None:
    """Appends to `part` what it lacks."""
    have = part.stat().st_size if part.exists() else 0
    try:
        answer = _open(url, {"Range": f"bytes={have}-"} if have else {})
    except urllib.error.HTTPError as error:
        if error.code == 416:  # Nothing is left to send: it is whole, or of another file; the hash tells.
            error.close()
            return
        raise
    with answer:
        whole = answer.status != 206
        length = int(answer.headers["Content-Length"]) if answer.headers["Content-Length"] else None
        free = shutil.disk_usage(part.parent).free
        if length is not None and length > free:
            raise OSError(errno.ENOSPC, f"{length:,} bytes are to come, {free:,} are free")
        written = 0
        with part.open("wb" if whole else "ab") as file:
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                written += len(chunk)
    if length is not None and written < length:
        raise http.client.IncompleteRead(b"", length - written)


def _open(url: str, headers: dict[str, str]) -> Any:
    secure(url)
    request = urllib.request.Request(url, headers={"User-Agent": "paddle-aws", **headers})
    return urllib.request.build_opener(_HttpsOnly).open(request, timeout=TIMEOUT)


def _attempts() -> Iterator[bool]:
    """Whether this attempt is the last."""
    for number in range(ATTEMPTS):
        if number:
            time.sleep(PAUSE * 2 ** (number - 1))
        yield number == ATTEMPTS - 1


@contextmanager
def _explained(url: str, last: bool) -> Iterator[None]:
    """A passing fault is forgiven unless it is the last attempt's; others end it at once."""
    url = without_secrets(url)
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 410):
            raise Failed(f"{url} is not there (HTTP {error.code})") from None
        if last or (error.code < 500 and error.code != 429):
            raise Unreachable(f"{url} is not to be had: HTTP {error.code} {error.reason}") from None
    except (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError) as error:
        if last:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            raise Unreachable(f"{url} was cut off or does not answer, {ATTEMPTS} times: {reason}") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Failed(f"no room for {url} on this disk: {error.strerror}") from None
        raise Failed(f"{url} cannot be kept here: {error.strerror or error}") from None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
