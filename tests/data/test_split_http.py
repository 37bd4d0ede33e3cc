"""An https:// source against a real server that does what servers do: cut off, refuse, fail, know no ranges."""

from __future__ import annotations

import io
import re
import socket
import ssl
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from job_folder import Job
from paddle_node.data import resumed
from paddle_node.data.sources import registry
from paddle_node.failure import Failure

pytestmark = pytest.mark.slow

CERTIFICATES = Path(__file__).parents[1] / "node" / "certificates"
CONTENT = b"".join(b"line %d\n" % number for number in range(50_000))


class Server:
    """Answers like a good server unless `fault` says otherwise for this request."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.requests: list[str] = []
        self.paths: list[str] = []
        self.content = CONTENT
        self.etag = '"v1"'
        self.fault: Callable[[BaseHTTPRequestHandler, int], bool] = lambda handler, number: False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                wanted = self.headers.get("Range", "")
                outer.requests.append(wanted)
                outer.paths.append(self.path)
                if not outer.fault(self, len(outer.requests)):
                    self.good(ranges=True)

            def unmeasured(self, body: bytes, chunked: bool) -> None:
                """An answer that tells neither length nor mark: in chunks, or until the connection ends."""
                self.send_response(200)
                if chunked:
                    self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body)
                self.close_connection = True

            def redirect(self, to: str) -> None:
                self.send_response(302)
                self.send_header("Location", to)
                self.send_header("Content-Length", "0")
                self.end_headers()

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

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self.address = f"http://{host}:{self._server.server_address[1]}/some/data.txt"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def secure(self, context: ssl.SSLContext) -> None:
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.address = self.address.replace("http:", "https:")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(resumed, "FIRST_WAIT", 0.001)
    server = Server()
    yield server
    server.close()


def whole(job: Job, content: bytes = CONTENT) -> bool:
    """Whether each line is in a shard, once."""
    found = [line for index in range(3) for line in job.shard(index).splitlines()]
    return sorted(found) == sorted(content.splitlines())


def read(server: Server, query: str = "") -> bytes:
    """As the data job reads it; raises what that would end with."""
    source = registry.open_source(server.address + query, {})
    with source.open(source.objects()[0]) as stream:
        return stream.read()


def test_a_good_server(job: Job, server: Server) -> None:
    manifest = job.split(server.address)
    assert whole(job)
    assert manifest.source.size == len(CONTENT)
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
    assert whole(job)
    assert server.requests == ["bytes=0-0", "", "bytes=100000-", "bytes=200000-"]


def test_a_server_without_ranges_is_read_from_the_beginning_again(job: Job, server: Server) -> None:
    def fault(handler, number: int) -> bool:
        handler.good(ranges=False, cut_after=100_000 if number == 2 else None)
        return True

    server.fault = fault
    job.split(server.address)
    assert whole(job)


def test_a_server_that_fails_now_and_then(job: Job, server: Server) -> None:
    def fault(handler, number: int) -> bool:
        if number % 3 == 0:
            return False
        handler.send_error(503)
        return True

    server.fault = fault
    job.split(server.address)
    assert whole(job)


@pytest.mark.parametrize(
    ("status", "code", "sentence"),
    [
        (403, 77, "data.txt answered 403 Forbidden: it must be readable without logging in"),
        (404, 2, "DATA_SOURCE is http://127.0.0.1:PORT/some/data.txt, which answered 404 Not Found"),
        (500, 68, "data.txt cannot be read after 6 tries: it answered 500 Internal Server Error"),
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


def test_a_server_that_is_gone(server: Server) -> None:
    def fault(handler, number: int) -> bool:
        if number == 2:
            handler.good(ranges=True, cut_after=123_456)
        elif number > 2:
            handler.send_error(502)
        return number > 1

    server.fault = fault
    with pytest.raises(Failure, match=r"cannot be read after 6 tries: it answered 502 Bad Gateway$") as caught:
        read(server)
    assert caught.value.code == 68
    assert len(server.requests) == 2 + 5


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
    assert whole(job)
    assert secure.requests == ["bytes=0-0", "", "bytes=123000-"]


def test_a_certificate_that_is_not_to_be_trusted(job: Job, secure: Server) -> None:
    with pytest.raises(Failure, match=f"DATA_SOURCE is {secure.address}, whose certificate is not to be trusted: ") as caught:
        job.split(secure.address)
    assert caught.value.code == 2
    assert secure.requests == []


def test_without_a_mark_of_its_content_it_is_never_joined_of_two_halves(server: Server) -> None:
    """The server sends neither ETag nor Last-Modified, and the file becomes another of the same size."""
    server.etag = ""

    def cut(handler, number: int) -> bool:
        if number != 2:
            return False
        handler.good(ranges=True, cut_after=100_000)
        server.content = becomes
        return True

    server.fault = cut
    becomes = CONTENT
    assert read(server) == CONTENT
    assert server.requests == ["bytes=0-0", "", ""], "only from the beginning can it be seen to be the same"
    server.requests.clear()
    becomes = CONTENT.replace(b"line", b"LINE")
    with pytest.raises(Failure, match="changed while it was being read: run the split again"):
        read(server)


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
    assert whole(job)


def test_an_address_of_nobody(job: Job, server: Server) -> None:
    server.close()
    with pytest.raises(Failure, match="cannot be read after 6 tries: ") as caught:
        job.split(server.address)
    assert caught.value.code == 68


def test_an_empty_file_on_the_web(job: Job, server: Server) -> None:
    server.content = b""
    with pytest.raises(Failure, match="has 0 records: too few for 3 shards"):
        job.split(server.address)


def test_another_query_is_another_source(job: Job, server: Server) -> None:
    """The same path and no mark: nothing is known to be the same."""

    def fault(handler, number: int) -> bool:
        handler.unmeasured((handler.path[-1].encode() + b"\n") * 6, chunked=True)
        return True

    server.fault = fault
    for letter in ("A", "B"):
        manifest = job.split(f"{server.address}?set={letter}")
        assert whole(job, b"%c\n" % ord(letter) * 6)
        assert manifest.source.etag == ""
    server.fault = lambda handler, number: False
    assert job.split(f"{server.address}?set=A").source != job.split(f"{server.address}?set=B").source


def test_without_a_mark_every_run_splits_anew(job: Job, server: Server) -> None:
    server.etag = ""
    job.split(server.address)
    server.content = CONTENT.replace(b"line", b"LINE")
    job.split(server.address)
    assert whole(job, server.content)


def test_a_body_that_ends_with_the_connection_is_refused(job: Job, server: Server) -> None:
    """Nobody could see whether all of it came."""

    def fault(handler, number: int) -> bool:
        handler.unmeasured(CONTENT[: len(CONTENT) // 3], chunked=False)
        return True

    server.fault = fault
    with pytest.raises(
        Failure, match="tells no Content-Length and sends no chunks: nobody could see whether it was cut"
    ) as caught:
        job.split(server.address)
    assert caught.value.code == 2
    assert not job.folder.data_manifest.exists()


def test_chunks_that_are_cut_are_not_the_end(server: Server) -> None:
    def fault(handler, number: int) -> bool:
        if number == 2:
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            handler.wfile.write(b"%x\r\n%s\r\n" % (100_000, CONTENT[:100_000]))
            handler.close_connection = True
        else:
            handler.unmeasured(CONTENT, chunked=True)
        return True

    server.fault = fault
    assert read(server) == CONTENT
    assert len(server.requests) == 3


def test_a_server_without_ranges_that_always_cuts_is_not_asked_for_ever(server: Server) -> None:
    """Each time it comes a little further, and the beginning is read again."""

    def fault(handler, number: int) -> bool:
        handler.good(ranges=False, cut_after=1000 * number)
        return True

    server.fault = fault
    with pytest.raises(Failure, match=r"cannot be read after 6 tries: it ended after 7000 of \d+ bytes") as caught:
        read(server)
    assert caught.value.code == 68
    assert len(server.requests) == 1 + 6


def test_an_answer_206_that_says_nothing_of_its_place_leaves_no_hole(server: Server) -> None:
    def fault(handler, number: int) -> bool:
        if number == 2:
            handler.good(ranges=True, cut_after=100_000)
        elif number == 3:
            handler.send_response(206)
            handler.send_header("Content-Length", "5")
            handler.send_header("ETag", server.etag)
            handler.end_headers()
            handler.wfile.write(b"wrong")
        return number in (2, 3)

    server.fault = fault
    assert read(server) == CONTENT


@pytest.mark.parametrize("ranges", [True, False])
def test_a_zip_on_the_web(job: Job, server: Server, ranges: bool) -> None:
    """Its directory is at the end: by ranges, or by way of the pod's scratch."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        half = CONTENT.index(b"\n", 200_000) + 1
        archive.writestr("a", CONTENT[:half])
        archive.writestr("b", CONTENT[half:])
    server.content = packed.getvalue()
    server.fault = lambda handler, number: (handler.good(ranges=ranges), True)[1]
    job.split(server.address)
    assert whole(job)


LINK_LOCAL = "DATA_SOURCE is .*, which leads to the link-local address {}: that is no source"


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("http://169.254.169.254/latest/meta-data/?token=SECRET", LINK_LOCAL.format(r"169\.254\.169\.254")),
        ("http://2852039166/latest/meta-data/", LINK_LOCAL.format(r"169\.254\.169\.254")),
        ("http://[::ffff:169.254.170.23]/v1/credentials", LINK_LOCAL.format(r"169\.254\.170\.23")),
        ("http://[64:ff9b::a9fe:a9fe]/", LINK_LOCAL.format(r"169\.254\.169\.254")),
        ("http://[fe80::1]/", LINK_LOCAL.format("fe80::1")),
        ("http://[fd00:ec2::254]/latest/meta-data/", LINK_LOCAL.format("fd00:ec2::254")),
        ("ftp://me:SECRET@127.0.0.1/x", r"leads to ftp://127\.0\.0\.1/x, which is not followed: https or http is allowed"),
        ("file:///etc/passwd", "which answered 302 Found"),
    ],
)
def test_a_redirect_to_where_no_source_is_is_not_followed(server: Server, target: str, sentence: str) -> None:
    """Link-local addresses are the node's: there EC2 and EKS hand out credentials."""
    server.fault = lambda handler, number: (handler.redirect(target), True)[1]
    with pytest.raises(Failure, match=sentence) as caught:
        read(server)
    assert caught.value.code == 2
    assert "SECRET" not in caught.value.sentence
    if not target.startswith(("ftp", "file")):
        with pytest.raises(Failure, match=sentence):
            registry.open_source(target, {}).objects()


def test_a_redirect_from_another_host_to_this_pod_is_not_followed(server: Server) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Sends nothing.
        except OSError:
            pytest.skip("this machine has no address but its loopback")
        other = Server(probe.getsockname()[0])
    try:
        other.fault = lambda handler, number: (handler.redirect(server.address), True)[1]
        with pytest.raises(Failure, match=r"leads to the loopback address 127\.0\.0\.1: that is no source"):
            read(other)
        assert server.requests == []
    finally:
        other.close()


def test_a_redirect_is_followed_with_the_range(server: Server) -> None:
    def fault(handler, number: int) -> bool:
        if not handler.path.endswith("?signed"):
            handler.redirect(server.address + "?signed")
            return True
        if number == 4:
            handler.good(ranges=True, cut_after=100_000)
            return True
        return False

    server.fault = fault
    assert read(server) == CONTENT
    assert server.requests[-1] == "bytes=100000-"


def test_https_is_not_followed_to_http(secure: Server, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATES / "ca.pem"))
    secure.fault = lambda handler, number: (handler.redirect("http://127.0.0.1:9/x?token=SECRET"), True)[1]
    with pytest.raises(Failure, match=r"leads to http://127\.0\.0\.1:9/x, which is not followed: https is allowed"):
        read(secure)


def test_the_connection_goes_to_the_address_that_was_checked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that resolves to another address the second time. Names are the one thing played here."""
    asked: list[str] = []
    really = socket.getaddrinfo

    def resolve(host, *arguments, **options):
        if host == "source.test":
            asked.append(host)
            host = "127.0.0.1" if len(asked) == 1 else "169.254.169.254"
        return really(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    server.address = server.address.replace("127.0.0.1", "source.test")
    with pytest.raises(Failure, match=r"leads to the link-local address 169\.254\.169\.254"):
        read(server)
    assert server.requests == ["bytes=0-0"]
    assert len(asked) == 2, "once for each connection"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("ftp://me:SECRET@host/f?token=SECRET", "'ftp://host/f': paths, s3://, https:// and http:// can be read, ftp:// cannot"),
        ("https:///f?token=SECRET", "'https:///f': the host is missing"),
        ("https://me:SECRET@host/f", "'https://host/f', with a user or password, which would not be sent"),
        ("https://me:SE/CRET@host/f", "'https://...': its host or port cannot be read"),
        ("https://me:SE?CRET@host/f", "'https://...': its host or port cannot be read"),
        ("https://host:port/f?token=SECRET", "'https://...': its host or port cannot be read"),
        ("https://host/ä?token=SECRET", "'https://host/ä': write blanks and letters beyond ASCII as %20 and the like"),
        ("https:/host/f?token=SECRET", "'https...': an absolute path in the container, s3://bucket/key or an https:// address"),
        ("s3://KEY:SECRET@bucket/f", "'s3://bucket/f', with a user or password: a bucket is read with the pod's own identity"),
    ],
)
def test_no_secret_of_an_address_is_printed(job: Job, address: str, shown: str) -> None:
    with pytest.raises(Failure) as caught:
        job.split(address)
    assert caught.value.code == 2
    assert caught.value.sentence.startswith(f"DATA_SOURCE is {shown}")
    assert not re.search("SECRET|CRET@", caught.value.sentence)


def test_a_query_stays_out_of_the_manifest_and_of_what_is_printed(job: Job, server: Server) -> None:
    result = job.run(server.address + "?X-Amz-Signature=SECRET")
    assert result.returncode == 0, result.stderr
    everything = (
        result.stdout + result.stderr + "".join(path.read_text(errors="replace") for path in job.folder.root.rglob("*.json"))
    )
    assert server.address in everything
    assert "SECRET" not in everything
    server.close()
    for fault in (404, 403, 500, 206):
        server = Server()
        server.fault = lambda handler, number, fault=fault: (handler.send_error(fault), True)[1]
        with pytest.raises(Failure) as caught:
            read(server, "?token=SECRET")
        assert "SECRET" not in caught.value.sentence
        server.close()
