"""An https:// source on a real server that does what servers do: it cuts answers off, refuses,
fails, ignores ranges.
"""

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from job_folder import Job, table, tar, zipped
from paddle_node.data import resuming_reader
from paddle_node.data.sources import open_source
from paddle_node.data.sources.s3_source import S3Source
from paddle_node.data.sources.source import Object
from paddle_node.failure import Failure

pytestmark = pytest.mark.slow

CERTIFICATES = Path(__file__).parents[1] / "node" / "certificates"
CONTENT = b"".join(b"line %d\n" % number for number in range(50_000))


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
    """Answers request number `n` with `faults[n]` and all others with `always`, which is good
    unless a test changes it.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str] = []
        self.content = CONTENT
        self.faults: dict[int, Answer] = {}
        self.always: Answer = good()
        self.address = f"http://127.0.0.1:{self.server_address[1]}/some/data.txt"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


def good(
    ranges: bool = True, cut: int | None = None, begin: int | None = None, etag: str = '"v1"'
) -> Answer:
    """Answers with the bytes asked for, or with those from `begin` on; cuts the body off after
    `cut` bytes.
    """

    def answer(handler: Handler) -> None:
        body = handler.server.content
        byte_range = (
            re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("Range", "")) if ranges else None
        )
        headers, status = {"ETag": etag}, 200
        if byte_range:
            first, last = (
                int(byte_range[1]) if begin is None else begin,
                int(byte_range[2] or len(body) - 1),
            )
            if first >= len(body):
                handler.head(416, Content_Length=0)
                return
            status, headers["Content_Range"] = (
                206,
                f"bytes {first}-{min(last, len(body) - 1)}/{len(body)}",
            )
            body = body[first : last + 1]
        handler.head(status, Content_Length=len(body), **headers)
        handler.wfile.write(body[:cut])
        handler.close_connection = cut is not None

    return answer


def status(code: int) -> Answer:
    return lambda handler: handler.send_error(code)


def redirect(to: str) -> Answer:
    return lambda handler: handler.head(302, Location=to, Content_Length=0)


def unmeasured(chunked: bool, cut: int | None = None) -> Answer:
    """An answer with neither length nor ETag: in chunks, or until the connection ends."""

    def answer(handler: Handler) -> None:
        handler.head(200, **({"Transfer_Encoding": "chunked"} if chunked else {}))
        body, end = handler.server.content[:cut], b"" if cut else b"0\r\n\r\n"
        handler.wfile.write(b"%x\r\n%s\r\n%s" % (len(body), body, end) if chunked else body)
        handler.close_connection = True

    return answer


def twice(name: str, *values: str) -> Answer:
    """An answer that has a header several times; an empty value stands for the content's length."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        for value in values:
            handler.send_header(name, value or str(len(handler.server.content)))
        handler.end_headers()
        handler.wfile.write(handler.server.content)
        handler.close_connection = True

    return answer


def nowhere() -> Answer:
    """A partial answer that does not say which part it is."""
    return lambda handler: (
        handler.head(206, Content_Length=5, ETag='"v1"'),
        handler.wfile.write(b"wrong"),
    )


def named(answer: dict[str, dict[str, Any]]) -> Answer:
    """The answer that web.yaml describes by the name of a function above and its arguments."""
    ((kind, given),) = answer.items()
    return globals()[kind](*given) if isinstance(given, list) else globals()[kind](**given)


def play(server: Server, row: dict[str, Any]) -> None:
    server.faults = {number: named(answer) for number, answer in row.get("faults", {}).items()}
    server.always = named(row.get("always", {"good": {}}))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(resuming_reader, "FIRST_WAIT", 0.001)
    with Server() as server:
        yield server
        server.shutdown()


def whole(job: Job, content: bytes = CONTENT) -> bool:
    """Whether each line is in the shards exactly once."""
    return job.records() == sorted(content.splitlines())


def read(server: Server, query: str = "") -> bytes:
    """Reads the source as the data job does; raises the failure that would end it."""
    source = open_source(server.address + query, {})
    with source.open(source.objects()[0]) as stream:
        return stream.read()


def refused(server: Server, sentence: str, code: int) -> None:
    with pytest.raises(Failure, match=sentence) as caught:
        read(server, "?token=SECRET")
    assert caught.value.code == code and "SECRET" not in caught.value.sentence


def test_a_good_server_is_asked_for_one_byte_the_second_time_and_a_query_is_told_to_nobody(
    job: Job, server: Server
) -> None:
    outputs = [job.run(server.address + "?X-Amz-Signature=SECRET") for _ in range(2)]
    assert whole(job)
    assert server.requests == ["bytes=0-0", "", "bytes=0-0"]
    written = [path.read_text(errors="replace") for path in job.folder.root.rglob("*.json")]
    assert server.address in "".join(written) and "SECRET" not in "".join([*outputs, *written])


CUT = good(cut=100_000)
FROM = "bytes=100000-"


@pytest.mark.parametrize("row", table("web.yaml")["whole"], ids=lambda row: row["name"])
def test_whatever_servers_do_the_content_comes_whole(server: Server, row: dict[str, Any]) -> None:
    play(server, row)
    assert read(server) == CONTENT
    assert server.requests == row["requests"]


HALF = CONTENT.index(b"\n", 200_000) + 1
ZIP = zipped([("a", CONTENT[:HALF]), ("b", CONTENT[HALF:])])


@pytest.mark.parametrize(
    ("packed", "faults", "always"),
    [
        (tar([("a", CONTENT)]), {2: good(cut=100)}, good()),
        (ZIP, {}, good()),
        (ZIP, {}, good(ranges=False)),
    ],
    ids=["tar, cut before its mark", "zip", "zip, by way of the pod's scratch"],
)
def test_an_archive_on_the_web(
    job: Job, server: Server, packed: bytes, faults: dict, always: Answer
) -> None:
    server.content, server.faults, server.always = packed, faults, always
    job.split(server.address)
    assert whole(job)


def test_an_object_of_s3_is_resumed_by_range_too(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-west-2")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
    server.faults = {1: CUT, 2: CUT}
    source, thing = S3Source("s3://bucket/key"), Object("key", len(CONTENT), '"v1"', "key")
    assert source.open(thing).read() == CONTENT
    assert server.requests == ["", FROM, "bytes=200000-"]
    server.faults = {4: CUT, 5: status(412)}
    with pytest.raises(
        Failure, match="s3://bucket/key changed while it was being read: run the split again"
    ):
        source.open(thing).read()


def test_https_is_resumed_by_range_too(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate comes from an authority that nobody trusts by default."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem")
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    server.address = server.address.replace("http:", "https:")
    refused(server, f"DATA_SOURCE is {server.address}, whose certificate cannot be trusted: ", 2)
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATES / "ca.pem"))
    server.faults = {2: CUT}
    assert read(server) == CONTENT
    assert server.requests == ["bytes=0-0", "", FROM]
    server.always = redirect("http://127.0.0.1:9/x?token=SECRET")
    refused(
        server,
        r"leads to http://127\.0\.0\.1:9/x, which is not followed: https is allowed, and http "
        r"from http",
        2,
    )


@pytest.mark.parametrize("row", table("web.yaml")["refused"], ids=lambda row: row["sentence"])
def test_a_server_that_refuses_or_cannot_be_trusted(server: Server, row: dict[str, Any]) -> None:
    play(server, row)
    refused(server, row["sentence"], row["code"])
    assert len(server.requests) <= 7


def test_an_address_of_nobody_and_an_empty_file(job: Job, server: Server) -> None:
    server.content = b""
    job.refused("has 0 records: too few for 3 shards", 65, server.address)
    server.server_close()
    refused(server, "cannot be read after 6 tries: ", 68)


def test_another_query_is_another_source_and_without_a_mark_every_run_splits_anew(
    job: Job, server: Server
) -> None:
    for query, letter in (("A", b"1"), ("B", b"2"), ("B", b"3")):
        server.content, server.always = (letter + b"\n") * 6, unmeasured(chunked=True)
        assert job.split(f"{server.address}?set={query}").source.etag == ""
        assert whole(job, server.content)
    server.always = good()
    assert (
        job.split(f"{server.address}?set=A").source != job.split(f"{server.address}?set=B").source
    )


LINK_LOCAL = {
    "http://169.254.169.254/latest/meta-data/?token=SECRET": "169.254.169.254",
    "http://2852039166/latest/meta-data/": "169.254.169.254",
    "http://[::ffff:169.254.170.23]/v1/credentials": "169.254.170.23",
    "http://[64:ff9b::a9fe:a9fe]/": "169.254.169.254",
    "http://[fe80::1]/": "fe80::1",
    "http://[fd00:ec2::254]/latest/meta-data/": "fd00:ec2::254",
}


@pytest.mark.parametrize("target", LINK_LOCAL)
def test_where_ec2_and_eks_hand_out_credentials_is_no_source_and_no_redirect_is_followed(
    server: Server, target: str
) -> None:
    sentence = (
        f"DATA_SOURCE is .*, which leads to {LINK_LOCAL[target]}, which is the pod's own or its "
        "node's: not a source"
    )
    server.always = redirect(target)
    refused(server, sentence, 2)
    with pytest.raises(Failure, match=sentence):
        open_source(target, {}).objects()


def test_a_redirect_from_another_host_to_this_pod_is_not_followed(server: Server) -> None:
    server.always = redirect(server.address)
    server.address = server.address.replace("127.0.0.1", "localhost")
    refused(server, r"leads to 127\.0\.0\.1, which is the pod's own or its node's", 2)
    assert server.requests == ["bytes=0-0"]


def test_the_connection_goes_to_the_address_that_was_checked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name resolves to another address the second time. Name resolution is the only thing
    simulated here.
    """
    answers = iter(("127.0.0.1", "169.254.169.254"))
    really = socket.getaddrinfo

    def resolve(host, *arguments, **options):
        return really(next(answers) if host == "source.test" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    server.address = server.address.replace("127.0.0.1", "source.test")
    refused(server, r"leads to 169\.254\.169\.254, which is the pod's own or its node's", 2)
    assert server.requests == ["bytes=0-0"] and not list(answers), (
        "it was asked once for each connection"
    )
