"""The board's web server: it answers only this machine's requests to its own address, which holds a
secret, and its pages load nothing from elsewhere.
"""

import json
import re
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

from paddle_aws.operations.errors import OperationError

FOLDER = Path(__file__).with_name("page")
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css",
    "js": "text/javascript",
    "json": "application/json",
}
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "frame-ancestors 'none'"
)
"""Allows inline styles, as Plotly writes its own style elements."""
_ORDER = r"(?<!\\)((?:\\\\)*)\\u(?=00[0189]|200[ef]|202[a-e]|206[6-9])"
"""Where JSON has one."""
Query = dict[str, list[str]]


class Response(NamedTuple):
    """The answer to a request."""

    code: int
    type: str
    content: bytes


NOT_FOUND = Response(404, "text/plain", b"no such page")


def json_answer(document: Any) -> Response:
    """Returns a document as an answer, with orders for a terminal or a browser as escapes."""
    text = re.sub(_ORDER, r"\1\\\\u", json.dumps(document))
    return Response(200, TYPES["json"], text.encode())


def read_page_file(name: str) -> Response:
    """Returns a file of the pages, or Plotly."""
    if name == "plotly.js":
        plotly = resources.files("plotly") / "package_data" / "plotly.min.js"
        return Response(200, TYPES["js"], plotly.read_bytes())
    if name not in {file.name for file in FOLDER.iterdir()}:
        return NOT_FOUND
    return Response(200, TYPES[name.rpartition(".")[2]], (FOLDER / name).read_bytes())


class Page(Protocol):
    """A page at the board's address."""

    def answer(self, name: str, query: Query) -> Response:
        """Answers a request for a name below the page's. Raises OperationError, OSError."""

    def refresh(self) -> None:
        """Called every half minute while the board runs: keeps alive what the page needs."""


class Site:
    """Serves a page at an address that holds a secret."""

    def __init__(self, page: Page) -> None:
        self.secret = secrets.token_urlsafe(16)
        self._page = page

    def server(self, port: int) -> ThreadingHTTPServer:
        """Returns a server for this machine only; port 0: any that is free."""
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                host = self.headers.get("Host", "")
                code, kind, content = site.answer(host, parts.path, parse_qs(parts.query))
                self.send_response(code)
                for name, value in {
                    "Content-Type": kind,
                    "Content-Length": str(len(content)),
                    "Content-Security-Policy": POLICY,
                    "Cache-Control": "no-store",
                    "Referrer-Policy": "no-referrer",
                    "X-Content-Type-Options": "nosniff",
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Logs nothing: each address holds the secret."""

        return ThreadingHTTPServer(("127.0.0.1", port), Handler)

    def answer(self, host: str, path: str, query: Query) -> Response:
        """Answers a request, if it is this machine's and knows the secret."""
        secret, _, name = path.lstrip("/").partition("/")
        # A request under another name of this machine comes from a foreign page that tries to read
        # this one.
        if host.partition(":")[0] != "127.0.0.1" or not secrets.compare_digest(
            secret.encode(), self.secret.encode()
        ):
            return NOT_FOUND
        try:
            return self._page.answer(name, query)
        except (OperationError, OSError) as error:
            return Response(503, "text/plain", str(error).encode())
