"""Downloads one file over HTTPS: checks it, stores it whole or not at all, and retries if the
transfer is cut off.

Refuses plain http, except to this machine.
"""

import errno
import hashlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError

from paddle_aws.operations.errors import BadInput, Failed, Unreachable
from paddle_settings.addresses import hide_secrets

ATTEMPTS = 5
PAUSE = 1.0
"""Seconds before the third attempt, doubled before each further one."""
TIMEOUT = 30.0
CHUNK = 1 << 20
TRANSIENT = (429, 500, 502, 503, 504)
T = TypeVar("T")


class _Session(requests.Session):
    """A session that never leaves HTTPS, wherever it is redirected."""

    def send(self, request: requests.PreparedRequest, **how: Any) -> requests.Response:
        require_https(str(request.url))
        return super().send(request, **how)


def require_https(url: str) -> None:
    """Raises BadInput for an address that anyone on the network path could answer."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (
        parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    ):
        raise BadInput(
            f"{hide_secrets(url)} is not an https address: hashes that come over anything "
            "else prove nothing"
        )


def content(url: str) -> bytes:
    """Returns the content of a short file."""
    return _retry(url, lambda: _get(url).content)


def redirection(url: str) -> str:
    """Returns where an address redirects, without following it; the address itself if it does not
    redirect.
    """
    return _retry(url, lambda: str(_get(url, follow=False).headers.get("Location") or url))


def download(url: str, target: Path, sha256: str | None) -> None:
    """Downloads `url` to `target`, unless it is there already. Without a hash only its length shows
    that the file is whole.
    """
    if target.is_file() and sha256 in (None, _sha256(target)):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    try:
        _retry(url, lambda: _fetch(url, part))
    except Exception:
        part.unlink(missing_ok=True)
        raise
    if sha256 not in (None, _sha256(part)):
        part.unlink()
        shown = hide_secrets(url)
        raise Failed(
            f"{shown} does not have the SHA-256 that its publisher lists ({sha256}): not kept, "
            "try again or ask them"
        )
    part.replace(target)


def _fetch(url: str, part: Path) -> None:
    with _get(url) as answer, part.open("wb") as file:
        shutil.copyfileobj(answer.raw, file, CHUNK)


def _get(url: str, follow: bool = True) -> requests.Response:
    """Returns an answer whose body is still to be read. Raises Failed or HTTPError."""
    # Not compressed: the bytes are stored, counted and hashed as they arrive.
    sent = {"User-Agent": "paddle-aws", "Accept-Encoding": "identity"}
    answer = _Session().get(url, headers=sent, stream=True, timeout=TIMEOUT, allow_redirects=follow)
    if answer.status_code in (404, 410):
        raise Failed(f"{hide_secrets(url)} is not there (HTTP {answer.status_code})")
    answer.raise_for_status()
    return answer


def _retry(url: str, act: Callable[[], T]) -> T:
    """Returns what `act` returns; retries after a fault that may pass, then says what it was."""
    url = hide_secrets(url)
    for number in range(ATTEMPTS):
        time.sleep(PAUSE * 2 ** (number - 2) if number > 1 else 0)
        try:
            return act()
        except (requests.RequestException, HTTPError) as error:
            # Not the error's own words: they repeat the address.
            reason = getattr(error.args[0], "reason", error) if error.args else error
            refusal = Unreachable(
                f"{url} was cut off or does not answer, {ATTEMPTS} times: {type(reason).__name__}"
            )
            if (answer := getattr(error, "response", None)) is not None:
                refusal = Unreachable(
                    f"{url} cannot be fetched: HTTP {answer.status_code} {answer.reason}"
                )
                if answer.status_code not in TRANSIENT:
                    raise refusal from None
            elif isinstance(error, ValueError):
                raise BadInput(f"{url} is not an address: https://host/path is allowed") from None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Failed(f"no room for {url} on this disk: {error.strerror}") from None
            raise Failed(f"{url} cannot be kept here: {error.strerror or error}") from None
    raise refusal


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
