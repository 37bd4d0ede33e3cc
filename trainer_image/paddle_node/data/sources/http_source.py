"""Reads one https:// or http:// address, and resumes by range if the server supports ranges.

It uses the standard library's client because a connection must go to the exact address that was
checked, even after a redirect.
"""

import contextlib
import http.client
import io
import ipaddress
import re
import socket
import ssl
import urllib.error
import urllib.request
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from paddle_node.contract import ExitCode, Variable
from paddle_node.data.resuming_reader import Interrupted, RangeAnswer, ResumingReader, Tries, reason
from paddle_node.data.sources.source import BUFFER, Object, Source, public_address, refuse_changed
from paddle_node.failure import BadSetting, Failure

TIMEOUT = 60.0
"""Seconds without a byte after which a connection counts as broken."""
DECISIVE = ("Content-Length", "Content-Range", "Transfer-Encoding", "ETag", "Last-Modified")
"""Headers that say how much an answer holds, and of what."""
METADATA = ipaddress.ip_network("fd00:ec2::/32")
"""Where EC2 and EKS hand out credentials, besides 169.254.0.0/16."""
NAT64 = ipaddress.ip_network("64:ff9b::/96")


class HttpSource(Source):
    """A single object. Verifies certificates, and takes proxies from the environment."""

    ranges = False

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._address = uri
        self._opener = urllib.request.build_opener(_Connections(self.uri), _Redirects())

    def objects(self) -> list[Object]:
        # Requests the first byte with GET: addresses signed for GET refuse HEAD.
        with Tries(self.uri).run(lambda: self._ask("bytes=0-0")) as response:
            size = _total(response)
            mark = _mark(response)
            if response.status == 200:
                self._answer(response)  # Raises if the answer's end cannot be detected.
            # Without a validator, nobody knows whether the rest belongs to the same file.
            self.ranges = response.status == 206 and size is not None and bool(mark)
        name = unquote(urlsplit(self._address).path.rpartition("/")[2]).rpartition("/")[2]
        return [Object("source" if name in ("", ".", "..") else name, size, mark, self._address)]

    def open(self, thing: Object, begin: int = 0) -> BinaryIO:
        def ask(offset: int) -> RangeAnswer:
            response = self._ask(f"bytes={offset}-" if offset else "")
            try:
                total = _total(response)
                if _mark(response) != thing.mark or (
                    thing.size is not None and total not in (thing.size, None)
                ):
                    refuse_changed(self.uri)
                return self._answer(response)
            except BaseException:
                response.close()
                raise

        breaks = (OSError, ValueError, http.client.HTTPException)
        return io.BufferedReader(
            ResumingReader(self.uri, thing, ask, breaks, begin, self.ranges), BUFFER
        )

    def _answer(self, response: http.client.HTTPResponse) -> RangeAnswer:
        if response.status == 206:
            place = re.match(r"bytes (\d+)-(\d+)/", response.headers.get("Content-Range", ""))
            if not place:
                raise Interrupted("it answered 206 and does not say with which bytes")
            return RangeAnswer(int(place[1]), int(place[2]) + 1, response)
        if response.chunked:
            return RangeAnswer(0, None, response)
        if response.length is None:
            self.refuse(
                ", whose server sends neither Content-Length nor chunks: a cut answer could not be "
                "seen; put the file into a bucket or onto the volume"
            )
        return RangeAnswer(0, response.length, response)

    def _ask(self, range_: str) -> http.client.HTTPResponse:
        headers = {"Accept-Encoding": "identity", "User-Agent": "paddle-aws"}
        if range_:
            headers["Range"] = range_
        try:
            request = urllib.request.Request(self._address, headers=headers)
            response: http.client.HTTPResponse = self._opener.open(request, timeout=TIMEOUT)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416 and range_ == "bytes=0-0":
                return self._ask("")  # An empty file has no first byte.
            if error.code == 416:
                refuse_changed(self.uri)
            # The server's own reason phrase may contain anything.
            answered = f"answered {error.code} {http.client.responses.get(error.code, '')}".rstrip()
            if error.code in (401, 403):
                raise Failure(
                    ExitCode.NOT_PERMITTED,
                    f"{self.uri} {answered}: it must be readable without logging in",
                ) from None
            if error.code < 500 and error.code not in (408, 429):
                self.refuse(f", which {answered}")
            raise Interrupted(f"it {answered}") from None
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", None) or error
            if isinstance(cause, ssl.SSLCertVerificationError):
                self.refuse(f", whose certificate cannot be trusted: {cause.verify_message}")
            raise Interrupted(reason(cause)) from None
        if response.status not in (200, 206):
            response.close()
            self.refuse(f", which answered {response.status}")
        for name in DECISIVE:
            if len(set(response.headers.get_all(name) or ())) > 1:
                response.close()
                self.refuse(
                    f", whose server answers with two different {name} headers: how much it sends, "
                    "or of what, is unknown"
                )
        return response


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects only to http and https, and never from https to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        if not newurl.startswith(
            "https://" if req.full_url.startswith("https:") else ("https://", "http://")
        ):
            places = f"{public_address(req.full_url)} leads to {public_address(newurl)}"
            raise BadSetting(
                f"{Variable.DATA_SOURCE}: {places}, which is not followed: https is allowed, and "
                "http from http"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Connections(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Connects to the address that was checked: the name may resolve to a different one next
    time.
    """

    def __init__(self, uri: str) -> None:
        super().__init__()
        self._uri = uri
        self._source = urlsplit(uri).netloc

    def do_open(self, http_class: Any, req: urllib.request.Request, **options: Any) -> Any:
        requested = urlsplit(req.full_url)
        proxied = req.host != unquote(requested.netloc)

        def connect(
            address: tuple[str, int], timeout: float, source_address: None = None
        ) -> socket.socket:
            if proxied:
                with contextlib.suppress(OSError):  # Perhaps only the proxy can resolve the name.
                    self._check_addresses(
                        requested.netloc, requested.hostname or "", requested.port or 80
                    )
                return socket.create_connection(address, timeout)
            failed = OSError("the name has no address")
            for place in self._check_addresses(requested.netloc, *address):
                try:
                    return socket.create_connection((place, address[1]), timeout)
                except OSError as error:
                    failed = error
            raise failed

        def connection(host: str, **more: Any) -> http.client.HTTPConnection:
            connection_: http.client.HTTPConnection = http_class(host, **more)
            connection_._create_connection = connect  # type: ignore[attr-defined]
            return connection_

        return super().do_open(connection, req, **options)

    def _check_addresses(self, netloc: str, host: str, port: int) -> list[str]:
        """Returns the host's addresses. Raises `BadSetting` if one of them is link-local, or
        loopback after a redirect.
        """
        places = [
            str(answer[4][0]) for answer in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        ]
        for address in map(_embedded_address, places):
            internal = (address.is_loopback or address.is_unspecified) and netloc != self._source
            if internal or address.is_link_local or address in METADATA:
                leads = f"leads to {address}, which is the pod's own or its node's"
                raise BadSetting(
                    f"{Variable.DATA_SOURCE} is {self._uri}, which {leads}: not a source"
                )
        return places


def _embedded_address(place: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Returns the address itself, or the IPv4 address that it stands for."""
    address = ipaddress.ip_address(place.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address in NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def _total(response: http.client.HTTPResponse) -> int | None:
    match = re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers.get("Content-Range", ""))
    if response.status == 206:
        return int(match[1]) if match else None
    return response.length


def _mark(response: http.client.HTTPResponse) -> str:
    return str(response.headers.get("ETag") or response.headers.get("Last-Modified") or "")
