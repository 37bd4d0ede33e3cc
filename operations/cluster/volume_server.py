"""What runs in the inspection pod: a job's folder on the volume, by HTTP, for one client that knows the token.

Nothing outside the folder can be named; a file that is sent appears whole or not at all; what is sent twice does as once; the
pod ends by itself when nobody asks for two minutes. It goes to the pod as text: the standard library of Python 3.9 alone.

    GET  /<token>/list?path=output     [{"name", "bytes", "time"}], all below it, but for links to folders
    GET  /<token>/file?path=&offset=&size=       bytes of a file
    GET  /<token>/sums?path=&offset=&end=&block=&part=     BLAKE2 of each block from there on, WINDOW blocks at most
    PUT  /<token>/file?path=&offset=   some bytes of a file to be
    POST /<token>/commit?path=&bytes=  makes it the file
    POST /<token>/set-aside?path=      renames a folder out of the way, and says what to
"""

import hashlib
import itertools
import json
import os
import secrets
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

IDLE = 120.0
WINDOW = 16
"""Blocks that one request sums: with the client's, some tenths of a second of work."""


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


def sums(path: Path, offset: int, end: int, block: int, part: bool = False) -> list[str]:
    """BLAKE2 of the next WINDOW blocks of a file, or of its part, up to `end`; an empty file is one empty block."""
    with (_part(path) if part else path).open("rb") as stream:
        stream.seek(offset)
        blocks = iter(lambda: stream.read(max(0, min(block, end - stream.tell()))), b"")
        found = [hashlib.blake2b(one).hexdigest() for one in itertools.islice(blocks, WINDOW)]
        return found if found or offset else [hashlib.blake2b().hexdigest()]


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


class Handler(BaseHTTPRequestHandler):
    """One request."""

    root: Path
    token: str
    asked = time.monotonic()

    def log_message(self, format: str, *args: object) -> None:
        """Silence: the address of each request holds the token."""

    def do_GET(self) -> None:
        Handler.asked = time.monotonic()
        parts = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token, _, action = parts.path.strip("/").partition("/")
        do = getattr(self, f"_{self.command}_{action}".lower().replace("-", "_"), None)
        path = Path(os.path.realpath(self.root / self.query.get("path", "")))  # In a circle too, where resolve() raises.
        if do is None or not secrets.compare_digest(token.encode(), self.token.encode()):
            code, answer = 404, b"no such thing"
        elif not path.is_relative_to(self.root):
            code, answer = 404, b"outside of the job's folder"
        else:
            try:
                code, answer = 200, do(path)
            except FileNotFoundError as error:
                code, answer = 404, f"{error.filename} does not exist".encode()
            except OSError as error:
                # Not a 5xx: asking again does not help.
                code, answer = 409, f"{error.strerror}: {error.filename}".encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_PUT = do_POST = do_GET

    def _number(self, name: str) -> int:
        return int(self.query.get(name, 0))

    def _get_list(self, path: Path) -> bytes:
        return json.dumps(listing(path)).encode()

    def _get_file(self, path: Path) -> bytes:
        return part(path, self._number("offset"), int(self.query.get("size", -1)))

    def _get_sums(self, path: Path) -> bytes:
        return json.dumps(
            sums(path, self._number("offset"), self._number("end"), self._number("block"), "part" in self.query)
        ).encode()

    def _put_file(self, path: Path) -> bytes:
        """Into a part beside it, whose gaps are filled by later requests."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with _part(path).open("r+b" if _part(path).exists() else "wb") as stream:
            stream.seek(self._number("offset"))
            stream.write(self.body)
        return b""

    def _post_commit(self, path: Path) -> bytes:
        """Twice, where the answer got lost: then the file is there, and its part is not."""
        part, size = _part(path), self._number("bytes")
        if part.exists() or not path.is_file() or path.stat().st_size != size:
            with part.open("r+b") as stream:
                stream.truncate(size)
                os.fsync(stream.fileno())
            part.replace(path)
        return b""

    def _post_set_aside(self, path: Path) -> bytes:
        number = 1
        while (target := path.with_name(f"{path.name}.set-aside-{number}")).exists():
            number += 1
        path.rename(target)
        return json.dumps(target.name).encode()


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
