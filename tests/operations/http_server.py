"""What the tests' servers share: a server that listens while a test runs, and one for files with a
publisher's faults.
"""

import ssl
from http.server import BaseHTTPRequestHandler
from typing import Self
from urllib.parse import unquote

from paddle_aws.rehearsal.pods.api_server import HTTPServer


class Server:
    """Use as a context manager; `url` is the address on which it listens. The handler finds the
    server as `api`.
    """

    handler: type[BaseHTTPRequestHandler]
    tls: ssl.SSLContext | None = None

    def __enter__(self) -> Self:
        handler = type("Handler", (self.handler,), {"api": self, "log_message": lambda *_: None})
        self._server = HTTPServer(("127.0.0.1", 0), handler)
        if self.tls:
            self._server.socket = self.tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()


class _FileHandler(BaseHTTPRequestHandler):
    api: "FileServer"

    def do_GET(self) -> None:
        api, path = self.api, unquote(self.path)
        api.asked.append(path)
        body = api.files.get(path)
        if api.statuses.get(path):
            return self.send_error(api.statuses[path].pop(0))
        if path in api.redirects:
            self.send_response(302)
            self.send_header("Location", api.redirects[path])
            return self.end_headers()
        if body is None:
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = api.cuts.get(path) or [len(body)]
        self.wfile.write(body[: cut.pop(0)])
        return None


class FileServer(Server):
    """Files by path, and the next faults by path: a status, or the number of bytes after which the
    connection is cut.
    """

    handler = _FileHandler

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.statuses: dict[str, list[int]] = {}
        self.cuts: dict[str, list[int]] = {}
        self.asked: list[str] = []
