"""What runs in a helper pod: a job's folder on the volume, by HTTP, for one client that knows the token.

Promises: nothing outside the folder can be named; a file that is sent appears whole or not at all; the pod ends by
itself when nobody asks for two minutes; what is sent twice does as once. Sent to the pod as text: standard library only.

    GET  /<token>/list?path=output     {"files": [{"name", "bytes", "time"}]}, all below it, but for links to folders
    GET  /<token>/file?path=...        the bytes; &offset=&size= a part of them
    GET  /<token>/sum?path=...&offset=&size=     {"sum", "count", "bytes"}: BLAKE2 of a part, how long it is, and the whole
    PUT  /<token>/file?path=...&offset=&last=1   a part of a file to be; the last one makes it the file
    POST /<token>/set-aside?path=...   renames a folder out of the way, and says what to
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

IDLE = 120.0
CHUNK = 1 << 20


def listing(path: Path) -> list[dict[str, Any]]:
    """Each file below a folder, but for links to folders."""
    found = []
    for folder, _, names in os.walk(path):
        for name in names:
            file = Path(folder, name)
            try:
                facts = file.stat()
            except OSError:
                continue
            found.append({"name": file.relative_to(path).as_posix(), "bytes": facts.st_size, "time": facts.st_mtime})
    return sorted(found, key=lambda entry: str(entry["name"]))


def part(path: Path, offset: int, size: int) -> bytes:
    """Bytes of a file; a negative offset counts from its end, a negative size means all."""
    with path.open("rb") as stream:
        stream.seek(offset if offset >= 0 else max(0, path.stat().st_size + offset))
        return stream.read(size)


def summed(path: Path, offset: int, size: int) -> tuple[str, int, int]:
    """BLAKE2 of a part of a file, how long the part is, and the file."""
    found = hashlib.blake2b()
    with path.open("rb") as stream:
        start = stream.seek(offset)
        while block := stream.read(min(start + size - stream.tell(), CHUNK)):
            found.update(block)
        return found.hexdigest(), stream.tell() - start, os.fstat(stream.fileno()).st_size


class Handler(BaseHTTPRequestHandler):
    """One request."""

    root: Path
    token: str
    asked = time.monotonic()

    def log_message(self, format: str, *args: object) -> None:
        """Silence: the address of each request holds the token."""

    def do_GET(self) -> None:
        self._answer({"list": self._list, "file": self._file, "sum": self._sum})

    def do_PUT(self) -> None:
        self._answer({"file": self._receive})

    def do_POST(self) -> None:
        self._answer({"set-aside": self._set_aside})

    def _answer(self, actions: dict[str, Callable[[Path], None]]) -> None:
        Handler.asked = time.monotonic()
        parts = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        token, _, action = parts.path.strip("/").partition("/")
        try:
            length = int(self.headers.get("Content-Length") or 0)
            self.body = self.rfile.read(length)
            if not secrets.compare_digest(token.encode(), self.token.encode()) or action not in actions:
                return self._send(404, b"no such thing")
            path = Path(os.path.realpath(self.root / self.query.get("path", "")))  # In a circle too, where resolve() raises.
            if not path.is_relative_to(self.root):
                return self._send(404, b"outside of the job's folder")
            actions[action](path)
        except FileNotFoundError as error:
            self._send(404, f"{error.filename} does not exist".encode())
        except OSError as error:
            # Not a 5xx: asking again does not help.
            self._send(409, f"{error.strerror}: {error.filename}".encode())

    def _send(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _list(self, path: Path) -> None:
        self._send(200, json.dumps({"files": listing(path)}).encode())

    def _file(self, path: Path) -> None:
        self._send(200, part(path, int(self.query.get("offset", 0)), int(self.query.get("size", -1))))

    def _sum(self, path: Path) -> None:
        found, count, size = summed(path, int(self.query["offset"]), int(self.query["size"]))
        self._send(200, json.dumps({"sum": found, "count": count, "bytes": size}).encode())

    def _receive(self, path: Path) -> None:
        part = path.with_name(f".{path.name}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        offset = int(self.query.get("offset", 0))
        if offset > (part.stat().st_size if part.exists() else 0):
            # The file's end again, whose answer got lost: there is no part any more to put it behind.
            if self.query.get("last") and path.is_file() and self._ends_with(path, offset):
                return self._send(200, b"{}")
            return self._send(409, f"what comes before byte {offset} is not there".encode())
        with part.open("r+b" if part.exists() else "wb") as stream:
            stream.seek(offset)
            stream.write(self.body)
            stream.truncate()
            stream.flush()
            if self.query.get("last"):
                # All of it at once; a part that a crash takes away again is seen when the upload goes on.
                os.fsync(stream.fileno())
        if self.query.get("last"):
            part.replace(path)
        self._send(200, b"{}")

    def _ends_with(self, path: Path, offset: int) -> bool:
        with path.open("rb") as stream:
            stream.seek(offset)
            return stream.read(len(self.body) + 1) == self.body

    def _set_aside(self, path: Path) -> None:
        number = 1
        while (target := path.with_name(f"{path.name}.set-aside-{number}")).exists():
            number += 1
        path.rename(target)
        self._send(200, json.dumps({"name": target.name}).encode())


def main() -> None:
    """Arguments: the job's folder, the token, the port."""
    Handler.root, Handler.token = Path(sys.argv[1]).resolve(), sys.argv[2]
    server = ThreadingHTTPServer(("", int(sys.argv[3])), Handler)
    print(f"listening on {server.server_address[1]}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while time.monotonic() - Handler.asked < IDLE:
        time.sleep(1)


if __name__ == "__main__":
    main()
