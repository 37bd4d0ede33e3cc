"""`paddle-aws board`: a job in the browser, while it runs and afterwards.

The page comes from this machine only: it loads nothing from elsewhere, and answers only requests to
this command's own address, which holds a secret. It reads the job's folder as `results` does.
"""

import json
import secrets
import threading
import time
import webbrowser
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

import typer
from paddle_node.contract import DATA_MANIFEST

from paddle_aws.operations.commands.cost import node_hour
from paddle_aws.operations.errors import OperationError, cli_errors
from paddle_aws.operations.jobs.backend import Backend, OfRehearsal, Volume, backend
from paddle_aws.operations.jobs.job_argument import DEFAULT, JobArgument
from paddle_aws.operations.screen import Context, Namespace, say

POINTS = 10_000
"""Lines of metrics that a page gets at most, for all ranks together."""
PIECE = 4 << 20
"""Bytes of an event file that one request reads."""
AWAKE = 30.0
"""Seconds between two requests that keep the inspection pod alive while no page is open."""
FOLDER = Path(__file__).with_name("board_page")
TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "json": "application/json",
}
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "frame-ancestors 'none'"
)
"""Allows inline styles, as Plotly writes its own style elements."""


def board(
    job: JobArgument = DEFAULT,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of this machine; 0: any that is free.")
    ] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page.")] = True,
    evaluate: Annotated[
        bool,
        typer.Option("--evaluate", help="Measure the newest pass on the held-out records first."),
    ] = False,
    rehearsal: OfRehearsal = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Show a job in the browser: loss by step and rank, speed, attempts, where the time went, slow
    ranks, the split's balance.

    A small pod with the job's image mounts the volume read-only until Ctrl-C. In the folder of a
    rehearsal it is the rehearsal's own page, while it runs, too.

    Example: paddle-aws board quick-start
    """
    with cli_errors("the board is closed"):
        library = Path(str(resources.files("plotly"))) / "package_data" / "plotly.min.js"
        where = backend(job, namespace, context, rehearsal)
        found = where.evaluate().model_dump(by_alias=True) if evaluate else None
        with where.volume() as volume:
            page = Page(where, volume, found, library)
            with page.server(port) as server:
                threading.Thread(target=server.serve_forever, daemon=True).start()
                address = f"http://127.0.0.1:{server.server_address[1]}/{page.secret}/"
                say(f"{where.name} is shown at {address} until Ctrl-C")
                if browser:
                    webbrowser.open(address)
                while True:
                    time.sleep(AWAKE)
                    with suppress(OperationError, OSError):
                        page.data()


class Page:
    """Answers what the browser may ask for."""

    def __init__(
        self, where: Backend, volume: Volume, evaluation: dict[str, Any] | None, plotly: Path
    ) -> None:
        self.secret = secrets.token_urlsafe(16)
        self._where, self._volume, self._evaluation, self._plotly = (
            where,
            volume,
            evaluation,
            plotly,
        )
        self._shards: list[int] = []
        self._events: set[str] = set()

    def server(self, port: int) -> ThreadingHTTPServer:
        """Returns a server for this machine only."""
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                code, kind, answer = page.answer(
                    self.headers.get("Host", ""), parts.path, parse_qs(parts.query)
                )
                self.send_response(code)
                for name, value in {
                    "Content-Type": kind,
                    "Content-Length": str(len(answer)),
                    "Content-Security-Policy": POLICY,
                    "Cache-Control": "no-store",
                    "Referrer-Policy": "no-referrer",
                    "X-Content-Type-Options": "nosniff",
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                """Logs nothing: each address holds the secret."""

        return ThreadingHTTPServer(("127.0.0.1", port), Handler)

    def answer(self, host: str, path: str, query: dict[str, list[str]]) -> tuple[int, str, bytes]:
        """Returns code, type and content."""
        secret, _, name = path.lstrip("/").partition("/")
        # A request by another name for this machine comes from somebody's page that wants to read
        # this one.
        if host.partition(":")[0] != "127.0.0.1" or not secrets.compare_digest(
            secret.encode(), self.secret.encode()
        ):
            return 404, "text/plain", b"no such page"
        try:
            if name == "data":
                return 200, TYPES["json"], json.dumps(self.data()).encode()
            if name == "events" and (file := query.get("path", [""])[0]) in self._events:
                offset = query.get("offset", [""])[0]
                begin = int(offset) if offset.isdecimal() else 0
                return (
                    200,
                    "application/octet-stream",
                    self._volume.read(f"output/{file}", begin, PIECE),
                )
            if name == "plotly.js":
                return 200, TYPES["js"], self._plotly.read_bytes()
            if name in ("", "page.css", "page.js"):
                file = name or "page.html"
                return 200, TYPES[file.rpartition(".")[2]], (FOLDER / file).read_bytes()
        except (OperationError, OSError) as error:
            return 503, "text/plain", str(error).encode()
        return 404, "text/plain", b"no such page"

    def data(self) -> dict[str, Any]:
        """Returns the job as it is now, and the raw lines of its ranks' metrics."""
        view, steps = self._where.status(), self._volume.steps("output", POINTS)
        self._events = {event["name"] for event in steps["events"]}
        if not self._shards:
            manifest = self._json(DATA_MANIFEST)
            self._shards = [
                sum(file["records"] for file in shard["files"])
                for shard in manifest.get("shards", ())
            ]
        return {
            "job": self._where.name,
            "state": view.phase,
            "reason": view.reason,
            "pods": view.as_json()["pods"],
            "attempts": self._json("output/run/attempts.json").get("attempts", []),
            "shards": self._shards,
            "evaluation": self._evaluation,
            "usd_per_hour": node_hour(),
            "now": time.time(),
            **steps,
        }

    def _json(self, path: str) -> dict[str, Any]:
        """Reads a JSON object from the volume; empty if it does not exist yet, or is damaged."""
        with suppress(FileNotFoundError, ValueError, RecursionError):
            # Drops Python's own numbers (NaN, Infinity), which a browser cannot parse.
            found = json.loads(self._volume.read(path), parse_constant=lambda _: None)
            return found if isinstance(found, dict) else {}
        return {}
