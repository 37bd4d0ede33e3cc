"""The inspection pod's program: serves a job's folder on the volume over HTTP to one client that
knows the token.

No request can name anything outside the folder; an uploaded file appears whole or not at all;
requests are idempotent; the pod exits on its own after two minutes without a request. The pod gets
this as text: only Python 3.9's standard library.

    GET  /<token>/files?path=output      [{"name", "bytes", "time"}] of all files below it
    PUT  /<token>/write?path=&offset=    the body: bytes of the new file

and so on: a request names a method of `Folder`, with the method's arguments as the query.
"""

import errno
import hashlib
import itertools
import json
import os
import re
import secrets
import stat
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl, urlsplit

IDLE_DEADLINE = 120.0
METRICS_LIMIT, METRICS_TOTAL = 4 << 20, 64 << 20
"""Bytes to read of a rank's metrics, and to send of all ranks'."""
WINDOW = 16
"""Blocks whose checksums one request gets: with the client's own, some tenths of a second of
work.
"""
VIEW = "attempts/newest/output/"
"""How links begin that lead to the files of a command while its run goes on."""
METHODS = dict.fromkeys(("files", "steps", "read", "sums"), "GET")
METHODS |= {"write": "PUT", "commit": "POST", "set_aside": "POST"}
"""The requests for a folder and their HTTP methods: a client that may only GET may only read."""


def resolve_inside(root: Path, path: str) -> Path:
    """Resolves a name in a folder. Raises FileNotFoundError if it leads out of the folder."""
    real = Path(os.path.realpath(root / path))  # Also for circular links, where resolve() raises.
    if not real.is_relative_to(os.path.realpath(root)):
        raise FileNotFoundError(errno.ENOENT, "outside of the job's folder", path)
    return real


class Folder:
    """A job's folder. Every path is below it; a missing file raises FileNotFoundError."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def where(self) -> str:
        """Identifies the folder."""
        return str(self.root)

    def files(self, path: str) -> list[dict[str, Any]]:
        """Returns each file below a folder: name, bytes, time; none if there is no such folder.

        Links to folders are followed only where they lead to what a command writes, which is left
        out where it really lies.
        """
        files, top = [], resolve_inside(self.root, path)
        views = {link.name for link in top.glob("*") if _target(link).startswith(VIEW)}
        for folder, folders, names in itertools.chain(
            os.walk(top), *(os.walk(top / name) for name in sorted(views))
        ):
            here = Path(folder).relative_to(top).parts
            attempt = len(here) == 3 and (here[0], here[2]) == ("attempts", "output")
            seen_by_link = views if attempt else set()
            folders[:] = [name for name in folders if name not in seen_by_link]
            for name in names:
                if name in seen_by_link:
                    continue
                file = Path(folder, name)
                try:
                    facts = resolve_inside(self.root, str(file)).stat()
                except OSError:
                    continue
                name = file.relative_to(top).as_posix()
                files.append({"name": name, "bytes": facts.st_size, "time": facts.st_mtime})
        return sorted(files, key=lambda entry: str(entry["name"]))

    def steps(self, path: str, most: int) -> dict[str, Any]:
        """Returns lines of the ranks' metrics below a folder, about `most` in all, and the event
        files, as `files` lists them.

        A long file is reduced to every N-th line, the last, and each that ends an attempt; a line
        begins with its attempt.
        """
        top = resolve_inside(self.root, path)
        files = sorted(
            file for file in top.glob("node_*/*") if re.fullmatch(r"steps-[0-9]+\.jsonl", file.name)
        )
        written = re.compile(r"(vdlrecords|tfevents)[^/]*$")
        events = [entry for entry in self.files(path) if written.search(entry["name"])]
        share, room = (max(1, whole // max(1, len(files))) for whole in (most, METRICS_TOTAL))
        texts = {}
        for file in files:
            try:
                lines = self.read(str(file), -METRICS_LIMIT).decode(errors="replace").splitlines()
            except OSError:
                continue
            whose = [line.partition(",")[0] for line in lines]
            apart = max(-(-len(lines) // share), -(-sum(map(len, lines)) // room))
            kept = [n % apart == 0 or whose[n : n + 2] != [whose[n]] * 2 for n in range(len(lines))]
            chosen = list(itertools.compress(lines, kept))
            # Not a rank's own file: each rank has few attempts, and short lines.
            while sum(map(len, chosen)) > 2 * room:
                chosen = chosen[1::2]
            texts[file.relative_to(top).as_posix()] = chosen
        return {"lines": texts, "events": events}

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Returns bytes of a file; a negative offset counts from its end, a negative size means
        all.
        """
        file = resolve_inside(self.root, path)
        with _open(file) as stream:
            stream.seek(offset if offset >= 0 else max(0, file.stat().st_size + offset))
            return stream.read(size)

    def sums(self, path: str, offset: int, end: int, block: int, part: bool = False) -> list[str]:
        """Returns BLAKE2 of the next WINDOW blocks of a file, or of its part, up to `end`; an empty
        file is one empty block.
        """
        file = resolve_inside(self.root, path)
        with _open(_part(file) if part else file) as stream:
            stream.seek(offset)
            blocks = iter(lambda: stream.read(max(0, min(block, end - stream.tell()))), b"")
            window = itertools.islice(blocks, WINDOW)
            digests = [hashlib.blake2b(content).hexdigest() for content in window]
            return digests if digests or offset else [hashlib.blake2b().hexdigest()]

    def write(self, path: str, body: bytes, offset: int) -> None:
        """Writes into a part file beside the final file; later requests fill its gaps."""
        part = _part(self._below(path))
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("r+b" if part.exists() else "wb") as stream:
            stream.seek(offset)
            stream.write(body)

    def commit(self, path: str, size: int) -> None:
        """Turns the part into the file. A repeated request, after a lost answer, finds the file and
        no part.
        """
        file = self._below(path)
        part = _part(file)
        if part.exists() or not file.is_file() or file.stat().st_size != size:
            with part.open("r+b") as stream:
                stream.truncate(size)
                os.fsync(stream.fileno())
            part.replace(file)

    def set_aside(self, path: str) -> str:
        """Renames a folder out of the way; returns its new name, also to a repeated request after a
        lost answer.
        """
        folder, number = self._below(path), 1
        while (target := folder.with_name(f"{folder.name}.set-aside-{number}")).exists():
            number += 1
        if number > 1 and not folder.exists():
            return f"{folder.name}.set-aside-{number - 1}"
        folder.rename(target)
        return target.name

    def _below(self, path: str) -> Path:
        """Resolves a name that may not be the folder itself."""
        if (place := resolve_inside(self.root, path)) == Path(os.path.realpath(self.root)):
            raise FileNotFoundError(errno.ENOENT, "the job's folder itself", path)
        return place


def _open(file: Path) -> IO[bytes]:
    """Opens a file to read it. Raises FileNotFoundError for anything else, such as a pipe, on which
    a reader would wait.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise FileNotFoundError(errno.ENOENT, "no regular file", str(file))


def _target(link: Path) -> str:
    """Returns where a link leads, as it says; empty: it is none, or gone."""
    try:
        return link.readlink().as_posix()
    except OSError:
        return ""


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


class Handler(BaseHTTPRequestHandler):
    """Handles one request."""

    folder: Folder
    token_digest: str
    """SHA-256 of the token, in hex: the pod's description shows it to all who may list pods."""
    asked = time.monotonic()

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: the address of each request holds the token."""

    def do_GET(self) -> None:
        Handler.asked = time.monotonic()
        parts = urlsplit(self.path)
        token, _, action = parts.path.strip("/").partition("/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if METHODS.get(action) != self.command or not secrets.compare_digest(
                hashlib.sha256(token.encode()).hexdigest(), self.token_digest
            ):
                raise FileNotFoundError(errno.ENOENT, "no such thing", action)
            arguments: dict[str, Any] = {"body": body} if action == "write" else {}
            arguments |= {
                k: v if k == "path" else int(v)
                for k, v in parse_qsl(parts.query, keep_blank_values=True)
            }
            result = getattr(self.folder, action)(**arguments)
            code, answer = 200, result if isinstance(result, bytes) else json.dumps(result).encode()
        except OSError as error:
            # Not a 5xx: a retry does not help.
            code = 404 if isinstance(error, FileNotFoundError) else 409
            answer = f"{error.strerror}: {error.filename}".encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_PUT = do_POST = do_GET


def main() -> None:
    """Arguments: the job's folder, the token's digest, the port."""
    Handler.folder, Handler.token_digest = Folder(Path(sys.argv[1])), sys.argv[2]
    server = ThreadingHTTPServer(("", int(sys.argv[3])), Handler)
    print(f"listening on {server.server_address[1]}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while time.monotonic() - Handler.asked < IDLE_DEADLINE:
        time.sleep(1)


if __name__ == "__main__":
    main()
