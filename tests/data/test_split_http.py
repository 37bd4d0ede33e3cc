"""An https:// source against a real server that does what servers do: cut off, refuse, fail, know no ranges."""

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from job_folder import Job, tar, zipped
from paddle_node.data import resumed
from paddle_node.data.sources import registry
from paddle_node.data.sources.registry import Object
from paddle_node.data.sources.s3_source import S3Source
from paddle_node.failure import Failure

pytestmark = pytest.mark.slow

CERTIFICATES = Path(__file__).parents[1] / "node" / "certificates"
CONTENT = b"".join(b"line %d\n" % number for number in range(50_000))
CHANGED = "changed while it was being read: run the split again"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_GET(self) -> None:
        self.server.requests.append(self.headers.get("Range", ""))
        self.server.faults.get(len(self.server.requests), self.server.always)(self)

    def head(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


Answer = Callable[[Handler], object]


class Server(ThreadingHTTPServer):
    """A good server, but for the answers to request number `n` in `faults[n]`, and to all others in `always`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str] = []
        self.content = CONTENT
        self.faults: dict[int, Answer] = {}
        self.always: Answer = good()
        self.address = f"http://127.0.0.1:{self.server_address[1]}/some/data.txt"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


def good(ranges: bool = True, cut: int | None = None, begin: int | None = None, etag: str = '"v1"', content=b"") -> Answer:
    """What is asked for, or from `begin` on; cut off after so many bytes."""

    def answer(handler: Handler) -> None:
        body = content or handler.server.content
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("Range", "")) if ranges else None
        headers, status = {"ETag": etag}, 200
        if wanted:
            first, last = int(wanted[1]) if begin is None else begin, int(wanted[2] or len(body) - 1)
            if first >= len(body):
                handler.head(416, Content_Length=0)
                return
            status, headers["Content_Range"] = 206, f"bytes {first}-{min(last, len(body) - 1)}/{len(body)}"
            body = body[first : last + 1]
        handler.head(status, Content_Length=len(body), **headers)
        handler.wfile.write(body[:cut])
        handler.close_connection = cut is not None

    return answer


def status(code: int) -> Answer:
    return lambda handler: handler.send_error(code)


def redirect(to: str) -> Answer:
    return lambda handler: handler.head(302, Location=to, Content_Length=0)


def unmeasured(body: bytes, chunked: bool, end: bytes = b"0\r\n\r\n") -> Answer:
    """An answer that tells neither length nor mark: in chunks, or until the connection ends."""

    def answer(handler: Handler) -> None:
        handler.head(200, **({"Transfer_Encoding": "chunked"} if chunked else {}))
        handler.wfile.write(b"%x\r\n%s\r\n%s" % (len(body), body, end) if chunked else body)
        handler.close_connection = True

    return answer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(resumed, "FIRST_WAIT", 0.001)
    with Server() as server:
        yield server
        server.shutdown()


def whole(job: Job, content: bytes = CONTENT) -> bool:
    """Whether each line is in a shard, once."""
    return job.records() == sorted(content.splitlines())


def read(server: Server, query: str = "") -> bytes:
    """As the data job reads it; raises what that would end with."""
    source = registry.open_source(server.address + query, {})
    with source.open(source.objects()[0]) as stream:
        return stream.read()


def refused(server: Server, sentence: str, code: int) -> None:
    with pytest.raises(Failure, match=sentence) as caught:
        read(server, "?token=SECRET")
    assert caught.value.code == code and "SECRET" not in caught.value.sentence


def test_a_good_server_is_asked_for_one_byte_the_second_time_and_an_addresss_query_is_told_to_nobody(
    job: Job, server: Server
) -> None:
    said = [job.run(server.address + "?X-Amz-Signature=SECRET") for _ in range(2)]
    assert whole(job)
    assert server.requests == ["bytes=0-0", "", "bytes=0-0"]
    written = [path.read_text(errors="replace") for path in job.folder.root.rglob("*.json")]
    assert server.address in "".join(written) and "SECRET" not in "".join([*said, *written])


FROM = "bytes=100000-"
CUT = good(cut=100_000)
UNMARKED, UNMARKED_CUT = good(etag=""), good(etag="", cut=100_000)
CUT_IN_CHUNKS = unmeasured(CONTENT[:100_000], chunked=True, end=b"")
NOWHERE = lambda handler: (handler.head(206, Content_Length=5, ETag='"v1"'), handler.wfile.write(b"wrong"))  # noqa: E731
SIGNED = redirect("?signed")


@pytest.mark.parametrize(
    ("faults", "always", "requests"),
    [
        ({2: CUT, 3: CUT}, good(), ["", FROM, "bytes=200000-"]),
        ({2: good(ranges=False, cut=100_000)}, good(ranges=False), ["", FROM]),
        ({number: status(503) for number in (1, 2, 4, 5)}, good(), ["bytes=0-0", "bytes=0-0", "", "", ""]),
        ({2: CUT, 3: good(begin=0)}, good(), ["", FROM]),
        ({2: CUT, 3: good(begin=150_000)}, good(), ["", FROM, FROM]),
        ({2: CUT, 3: NOWHERE}, good(), ["", FROM, FROM]),
        ({2: CUT_IN_CHUNKS}, unmeasured(CONTENT, chunked=True), ["", ""]),
        ({1: SIGNED, 3: SIGNED, 4: CUT, 5: SIGNED}, good(), ["bytes=0-0", "", "", FROM, FROM]),
        # Only from the beginning can it be seen to be the same.
        ({2: UNMARKED_CUT}, UNMARKED, ["", ""]),
    ],
    ids=["cut", "no ranges", "some fail", "from the beginning", "a hole", "206 of nowhere", "chunks", "redirects", "no mark"],
)
def test_whatever_servers_do_the_content_comes_whole(server: Server, faults: dict, always: Answer, requests: list[str]) -> None:
    server.faults, server.always = faults, always
    assert read(server) == CONTENT
    assert server.requests == ["bytes=0-0", *requests]


HALF = CONTENT.index(b"\n", 200_000) + 1
ZIP = zipped([("a", CONTENT[:HALF]), ("b", CONTENT[HALF:])])


@pytest.mark.parametrize(
    ("packed", "faults", "always"),
    [(tar([("a", CONTENT)]), {2: good(cut=100)}, good()), (ZIP, {}, good()), (ZIP, {}, good(ranges=False))],
    ids=["tar, cut before its mark", "zip", "zip, by way of the pod's scratch"],
)
def test_an_archive_on_the_web(job: Job, server: Server, packed: bytes, faults: dict, always: Answer) -> None:
    server.content, server.faults, server.always = packed, faults, always
    job.split(server.address)
    assert whole(job)


def test_an_object_of_s3_is_resumed_by_range_too(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-west-2")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
    server.faults = {1: CUT, 2: CUT}
    source, thing = S3Source("s3://bucket/key"), Object("key", len(CONTENT), '"v1"', "key")
    assert source.open(thing).read() == CONTENT
    assert server.requests == ["", FROM, "bytes=200000-"]
    server.faults = {4: CUT, 5: status(412)}
    with pytest.raises(Failure, match=f"s3://bucket/key {CHANGED}"):
        source.open(thing).read()


def test_https_is_resumed_by_range_too(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is of an authority that nobody knows by itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.address = server.address.replace("http:", "https:")
    refused(server, f"DATA_SOURCE is {server.address}, whose certificate cannot be trusted: ", 2)
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATES / "ca.pem"))
    server.faults = {2: CUT}
    assert read(server) == CONTENT
    assert server.requests == ["bytes=0-0", "", FROM]
    server.always = redirect("http://127.0.0.1:9/x?token=SECRET")
    refused(server, r"leads to http://127\.0\.0\.1:9/x, which is not followed: https is allowed, and http from http", 2)


ANOTHER = CONTENT.replace(b"line", b"LINE")
FURTHER = {number: good(ranges=False, cut=1000 * number) for number in range(1, 8)}
"""Each time it comes a little further, and the beginning is read again."""
NO_LENGTH = "sends neither Content-Length nor chunks: a cut answer could not be seen"
NOT_FOLLOWED = "leads to ftp://127.0.0.1/x, which is not followed: https is allowed, and"


@pytest.mark.parametrize(
    ("faults", "always", "code", "sentence"),
    [
        ({}, status(403), 77, "data.txt answered 403 Forbidden: it must be readable without logging in"),
        ({}, status(404), 2, r"DATA_SOURCE is http://127.0.0.1:\d+/some/data.txt, which answered 404 Not Found"),
        ({}, status(500), 68, "data.txt cannot be read after 6 tries: it answered 500 Internal Server Error"),
        ({1: good(), 2: good(cut=123_456)}, status(502), 68, "cannot be read after 6 tries: it answered 502 Bad Gateway"),
        ({1: good(), 2: CUT}, good(etag='"v2"'), 65, CHANGED),
        ({1: UNMARKED, 2: UNMARKED_CUT}, good(etag="", content=ANOTHER), 65, CHANGED),
        (FURTHER, good(), 68, r"cannot be read after 6 tries: it ended after 7000 of \d+ bytes"),
        ({}, unmeasured(CONTENT[:99], chunked=False), 2, NO_LENGTH),
        ({}, redirect("file:///etc/passwd"), 2, "which answered 302 Found"),
        ({}, redirect("ftp://me:SECRET@127.0.0.1/x"), 2, NOT_FOLLOWED),
    ],
)
def test_a_server_that_refuses_or_cannot_be_trusted(
    server: Server, faults: dict, always: Answer, code: int, sentence: str
) -> None:
    server.faults, server.always = faults, always
    refused(server, sentence, code)
    assert len(server.requests) <= 7


def test_an_address_of_nobody_and_an_empty_file(job: Job, server: Server) -> None:
    server.content = b""
    job.refused("has 0 records: too few for 3 shards", 65, server.address)
    server.server_close()
    refused(server, "cannot be read after 6 tries: ", 68)


def test_another_query_is_another_source_and_without_a_mark_every_run_splits_anew(job: Job, server: Server) -> None:
    for query, letter in (("A", b"1"), ("B", b"2"), ("B", b"3")):
        server.always = unmeasured((letter + b"\n") * 6, chunked=True)
        assert job.split(f"{server.address}?set={query}").source.etag == ""
        assert whole(job, (letter + b"\n") * 6)
    server.always = good()
    assert job.split(f"{server.address}?set=A").source != job.split(f"{server.address}?set=B").source


LINK_LOCAL = {
    "http://169.254.169.254/latest/meta-data/?token=SECRET": "169.254.169.254",
    "http://2852039166/latest/meta-data/": "169.254.169.254",
    "http://[::ffff:169.254.170.23]/v1/credentials": "169.254.170.23",
    "http://[64:ff9b::a9fe:a9fe]/": "169.254.169.254",
    "http://[fe80::1]/": "fe80::1",
    "http://[fd00:ec2::254]/latest/meta-data/": "fd00:ec2::254",
}


@pytest.mark.parametrize("target", LINK_LOCAL)
def test_where_ec2_and_eks_hand_out_credentials_is_no_source_and_no_redirect_is_followed(server: Server, target: str) -> None:
    sentence = f"DATA_SOURCE is .*, which leads to {LINK_LOCAL[target]}, which is the pod's own or its node's: that is no source"
    server.always = redirect(target)
    refused(server, sentence, 2)
    with pytest.raises(Failure, match=sentence):
        registry.open_source(target, {}).objects()


def test_a_redirect_from_another_host_to_this_pod_is_not_followed(server: Server) -> None:
    server.always = redirect(server.address)
    server.address = server.address.replace("127.0.0.1", "localhost")
    refused(server, r"leads to 127\.0\.0\.1, which is the pod's own or its node's", 2)
    assert server.requests == ["bytes=0-0"]


def test_the_connection_goes_to_the_address_that_was_checked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that resolves to another address the second time. Names are the one thing played here."""
    answers = iter(("127.0.0.1", "169.254.169.254"))
    really = socket.getaddrinfo

    def resolve(host, *arguments, **options):
        return really(next(answers) if host == "source.test" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    server.address = server.address.replace("127.0.0.1", "source.test")
    refused(server, r"leads to 169\.254\.169\.254, which is the pod's own or its node's", 2)
    assert server.requests == ["bytes=0-0"] and not list(answers), "it was asked once for each connection"


def test_a_scratch_that_is_too_small_for_a_zip_is_told_from_the_volume(
    job: Job, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_disk: Callable[[Path, str], Path]
) -> None:
    scratch = small_disk(tmp_path / "scratch", "64k")
    monkeypatch.chdir(scratch)
    server.content, server.always = ZIP, good(ranges=False)
    said = job.run(server.address, ends=74, TMPDIR=scratch)
    monkeypatch.undo()  # A working folder is not unmounted.
    assert said.endswith(f"split: {scratch} is full: nothing that was complete before has changed; make room and run again\n")
