"""An https:// source against a real server that does what servers do: cut off, refuse, fail, know no ranges."""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from job_folder import Job
from paddle_node.failure import Failure
from paddle_node.splitting import download

pytestmark = pytest.mark.slow

CERTIFICATES = Path(__file__).parents[1] / "node" / "certificates"
CONTENT = b"".join(b"line %d\n" % number for number in range(50_000))


class Server:
    """Answers like a good server unless `fault` says otherwise for this request."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.content = CONTENT
        self.etag = '"v1"'
        self.fault: Callable[[BaseHTTPRequestHandler, int], bool] = lambda handler, number: False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                wanted = self.headers.get("Range", "")
                outer.requests.append(wanted)
                if not outer.fault(self, len(outer.requests)):
                    self.good(ranges=True)

            def good(self, ranges: bool, cut_after: int | None = None) -> None:
                match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")) if ranges else None
                body = outer.content
                if match:
                    first, last = int(match[1]), int(match[2] or len(body) - 1)
                    if first >= len(body):
                        self.send_response(416)
                        self.send_header("Content-Length", "0")
                        self.end_headers()
                        return
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {first}-{min(last, len(body) - 1)}/{len(body)}")
                    body = body[first : last + 1]
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("ETag", outer.etag)
                self.end_headers()
                self.wfile.write(body[:cut_after])
                if cut_after is not None:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}/some/data.txt"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def secure(self, context: ssl.SSLContext) -> None:
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.address = self.address.replace("http:", "https:")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(download, "FIRST_WAIT", 0.001)
    server = Server()
    yield server
    server.close()


def whole(job: Job) -> bytes:
    return b"".join(job.shard(index) for index in range(3))


def test_a_good_server(job: Job, server: Server) -> None:
    manifest = job.split(server.address)
    assert whole(job) == CONTENT
    assert (manifest.source.size, manifest.source.etag) == (len(CONTENT), '"v1"')
    requests = len(server.requests)
    job.split(server.address)
    assert len(server.requests) == requests + 1, "running again asks for one byte, to see whether the source has changed"


def test_a_connection_cut_in_the_middle_is_resumed_by_range(job: Job, server: Server) -> None:
    def cut(handler, number: int) -> bool:
        if number not in (2, 3):
            return False
        handler.good(ranges=True, cut_after=100_000)
        return True

    server.fault = cut
    job.split(server.address)
    assert whole(job) == CONTENT
    assert server.requests == ["bytes=0-0", "", "bytes=100000-", "bytes=200000-"]


def test_a_server_without_ranges_is_read_from_the_beginning_again(job: Job, server: Server) -> None:
    def fault(handler, number: int) -> bool:
        handler.good(ranges=False, cut_after=100_000 if number == 2 else None)
        return True

    server.fault = fault
    job.split(server.address)
    assert whole(job) == CONTENT


def test_a_server_that_fails_now_and_then(job: Job, server: Server) -> None:
    def fault(handler, number: int) -> bool:
        if number % 3 == 0:
            return False
        handler.send_error(503)
        return True

    server.fault = fault
    job.split(server.address)
    assert whole(job) == CONTENT


@pytest.mark.parametrize(
    ("status", "code", "sentence"),
    [
        (403, 77, "data.txt answered 403 Forbidden: it must be readable without logging in"),
        (404, 2, "DATA_SOURCE is http://127.0.0.1:PORT/some/data.txt, which answered 404 Not Found"),
        (500, 68, "data.txt cannot be reached after 6 tries: it answered 500 Internal Server Error"),
    ],
)
def test_a_server_that_refuses(job: Job, server: Server, status: int, code: int, sentence: str) -> None:
    def fault(handler, number: int) -> bool:
        handler.send_error(status)
        return True

    server.fault = fault
    with pytest.raises(Failure) as caught:
        job.split(server.address)
    assert caught.value.code == code
    assert caught.value.sentence.endswith(sentence.replace("PORT", server.address.split(":")[2].split("/")[0]))
    assert not job.folder.data_manifest.exists()


def test_a_server_that_is_gone_keeps_what_arrived_for_the_next_run(
    job: Job, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "DURABLE", 1000)

    def fault(handler, number: int) -> bool:
        if number == 1:
            return False
        if number == 2:
            handler.good(ranges=True, cut_after=123_456)
        else:
            handler.send_error(502)
        return True

    server.fault = fault
    with pytest.raises(Failure, match="after 6 tries: it answered 502 Bad Gateway; what arrived is kept for the next run"):
        job.split(server.address)
    server.fault = lambda handler, number: False
    server.requests.clear()
    job.split(server.address)
    assert whole(job) == CONTENT
    assert server.requests == ["bytes=0-0", "bytes=123000-"]


def test_a_source_that_changes_in_the_middle(job: Job, server: Server) -> None:
    def fault(handler, number: int) -> bool:
        if number == 2:
            handler.good(ranges=True, cut_after=100_000)
            server.etag = '"v2"'
            return True
        return False

    server.fault = fault
    with pytest.raises(Failure, match="changed while it was being read: run the split again"):
        job.split(server.address)


@pytest.fixture
def secure(server: Server) -> Server:
    """The same over TLS, with a certificate of an authority that nobody knows by itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem")
    server.secure(context)
    return server


def test_https_is_resumed_by_range_too(job: Job, secure: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATES / "ca.pem"))

    def fault(handler, number: int) -> bool:
        if number == 2:
            handler.good(ranges=True, cut_after=123_000)
            return True
        return False

    secure.fault = fault
    job.split(secure.address)
    assert whole(job) == CONTENT
    assert secure.requests == ["bytes=0-0", "", "bytes=123000-"]


def test_a_certificate_that_is_not_to_be_trusted(job: Job, secure: Server) -> None:
    with pytest.raises(Failure, match=f"DATA_SOURCE is {secure.address}, whose certificate is not to be trusted: ") as caught:
        job.split(secure.address)
    assert caught.value.code == 2
    assert secure.requests == []


def test_without_a_mark_of_its_content_it_is_never_joined_of_two_halves(job: Job, server: Server) -> None:
    """The server sends neither ETag nor Last-Modified, and the file becomes another of the same size."""
    server.etag = ""
    changed = CONTENT.replace(b"line", b"LINE")

    def fault(handler, number: int) -> bool:
        if number == 2:
            handler.good(ranges=True, cut_after=100_000)
            server.content = changed
            return True
        return False

    server.fault = fault
    job.split(server.address)
    assert whole(job) == changed


@pytest.mark.parametrize("first", [0, 150_000])
def test_a_server_that_answers_with_another_range_than_it_was_asked_for(job: Job, server: Server, first: int) -> None:
    def fault(handler, number: int) -> bool:
        if number == 2:
            handler.good(ranges=True, cut_after=100_000)
            return True
        if number == 3:
            handler.headers.replace_header("Range", f"bytes={first}-")
        return False

    server.fault = fault
    job.split(server.address)
    assert whole(job) == CONTENT


def test_an_address_of_nobody(job: Job, server: Server) -> None:
    server.close()
    with pytest.raises(Failure, match="cannot be reached after 6 tries: ") as caught:
        job.split(server.address)
    assert caught.value.code == 68


def test_an_empty_file_on_the_web(job: Job, server: Server) -> None:
    server.content = b""
    with pytest.raises(Failure, match="has 0 records: too few for 3 shards"):
        job.split(server.address)


def test_a_password_in_the_address_stays_out_of_the_manifest(job: Job, server: Server) -> None:
    address = server.address + "?X-Amz-Signature=secret"
    job.split(address)
    assert "secret" not in job.folder.data_manifest.read_text()
    assert job.split(address).source.uri == server.address
