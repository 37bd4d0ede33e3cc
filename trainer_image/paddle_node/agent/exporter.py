"""The pod's numbers in OpenMetrics, for a Prometheus or a CloudWatch agent: GET /metrics.

Anybody who can reach the port may read; nobody can change anything. The exporter never disturbs
training: a fault here ends only the exporter. A client gets one short answer and a few seconds.
However many and slow the clients are, it serves few at once, with few answers a second. The volume
is read at most every five seconds, outside the event loop.
"""

import asyncio
import contextlib
import itertools
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paddle_node import background, contract
from paddle_node.volume import steps
from paddle_node.volume.steps import Step

CLIENTS = 8
"""Connections that are served at once; others wait in the kernel, where `WAITING` have room."""
WAITING = 16
PAUSE = 0.02
"""Seconds between two connections."""
DEADLINE = 3.0
"""Seconds for a client to ask and to take its answer."""
LONGEST, PIECES = 4096, 16
"""Most bytes of a request, and in how many pieces they may come."""
CACHE_SECONDS = 1.0
"""Seconds for which an answer is reused."""
READ_AGAIN, WAIT = 5.0, 0.5
"""Seconds between two looks at the volume, and how long an answer waits for one."""
RANKS = 16
"""Most step logs of a pod that are read."""
ENTRIES = 10_000
"""Most files of the pod's folder that are looked at."""
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"

FAMILIES = {
    "paddle_attempt": "Number of the attempt that runs or ran last.",
    "paddle_attempt_running": "1 while an attempt runs in this pod.",
    "paddle_step": "The newest step that a rank reported.",
    "paddle_pass": "The pass that a rank is in.",
    "paddle_step_metric": "A metric of the newest steps, such as loss.",
    "paddle_steps_per_second": "Steps a second over about the last minute.",
    "paddle_records_per_second": "Records a second of this rank's shard.",
    "paddle_run_seconds": "Where the run's time went, as the mean over its pods.",
    "paddle_goodput_ratio": "Share of the run's time that trained and was kept.",
    "paddle_slow_trainer_ratio": "How many times the median a slow rank's step takes.",
}
"""The metrics and what they mean. All are gauges: most may fall again when an attempt ends."""
Sample = tuple[str, float, Mapping[str, str]]
"""A metric's name, its value and its labels."""


def exposition(samples: Iterable[Sample], **common: str) -> str:
    """Returns the samples as OpenMetrics text, each with the labels `common`, too."""
    lines: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for name, value, labels in samples:
        text = ",".join(f'{label}="{_escape(v)}"' for label, v in {**common, **labels}.items())
        lines[name].append(f"{name}{{{text}}} {value!r}")
    families = [
        "\n".join([f"# TYPE {name} gauge", f"# HELP {name} {FAMILIES[name]}", *sample_lines])
        for name, sample_lines in lines.items()
        if sample_lines
    ]
    return "\n".join([*families, "# EOF\n"])


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def read_progress(folder: Path, attempt: int) -> list[Sample]:
    """Returns what the step logs in a pod's folder on the volume say about an attempt. Blocking.

    Programs write there, so it checks the kind of each file, and every line. Raises OSError.
    """
    with os.scandir(folder) as entries:
        names = [entry.name for entry in itertools.islice(entries, ENTRIES)]
    matches = [match for name in names if (match := steps.FILE.fullmatch(name)) is not None]
    progress: list[Sample] = []
    for match in sorted(matches, key=lambda match: int(match[1]))[:RANKS]:
        if lines := steps.read_newest(folder / match[0], attempt):
            progress += _progress({"rank": match[1]}, lines)
    return progress


def _progress(rank: Mapping[str, str], lines: list[Step]) -> Iterator[Sample]:
    # The last lines, which are at most ten seconds apart: a speed of about the last minute.
    newest, before = lines[-1], lines[-min(len(lines), 7)]
    seconds, made = newest.time - before.time, newest.step - before.step
    yield "paddle_step", newest.step, rank
    metrics = {name: value for step in lines for name, value in step.metrics.items()}
    for name, value in metrics.items():
        yield "paddle_step_metric", value, {**rank, "name": name}
    if newest.pass_number is not None:
        yield "paddle_pass", newest.pass_number, rank
    if seconds > 0 and made >= 0:
        yield "paddle_steps_per_second", made / seconds, rank
    same_pass = newest.pass_number == before.pass_number
    if seconds > 0 and same_pass and newest.records is not None and before.records is not None:
        yield "paddle_records_per_second", (newest.records - before.records) / seconds, rank


@dataclass(frozen=True)
class PodFacts:
    """The facts that the agent knows without the volume."""

    job: str
    folder: Path
    """The pod's folder on the volume."""
    attempt: int
    """The attempt that runs, or ran last; 0: none yet."""
    running: bool
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Goodput: the run's seconds by what they went into; only the pod of trainer 0 knows them."""
    slow: Mapping[int, float] = field(default_factory=dict)
    """How many times the median a step takes, by the rank of each slow trainer."""


def samples(pod: PodFacts, progress: Iterable[Sample]) -> Iterator[Sample]:
    """Yields a pod's metrics."""
    yield "paddle_attempt", pod.attempt, {}
    yield "paddle_attempt_running", float(pod.running), {}
    if pod.running:
        yield from progress
    for part, spent in pod.seconds.items():
        yield "paddle_run_seconds", round(spent, 3), {"part": part}
    if (whole := sum(pod.seconds.values())) > 0:
        yield "paddle_goodput_ratio", round(pod.seconds.get("training", 0.0) / whole, 6), {}
    for slow, times in pod.slow.items():
        yield "paddle_slow_trainer_ratio", round(times, 3), {"rank": str(slow)}


class Exporter:
    """Serves the facts that `look` returns, and the progress on the volume."""

    def __init__(self, look: Callable[[], PodFacts], say: Callable[[str], None]) -> None:
        self._look = look
        self._say = say
        self._text, self._made = b"", -math.inf
        self._progress: list[Sample] = []
        self._read: asyncio.Task[None] | None = None
        self._read_at = -math.inf

    async def serve(self, address: str, port: int) -> None:
        """Serves until it is cancelled, or something of its own fails."""
        try:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with socket.create_server((address, port), family=family, backlog=WAITING) as listener:
                listener.setblocking(False)
                await self._accept(listener)
        except Exception as error:
            self._say(f"no metrics are served at port {port}: {error}; training continues without")

    async def _accept(self, listener: socket.socket) -> None:
        loop, free = asyncio.get_running_loop(), asyncio.Semaphore(CLIENTS)
        clients: set[asyncio.Task[None]] = set()

        def forget(task: asyncio.Task[None]) -> None:
            clients.discard(task)
            free.release()

        try:
            while True:
                await free.acquire()
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError:  # It is gone again, or a limit was reached.
                    free.release()
                else:
                    clients.add(task := asyncio.create_task(self._answer(connection)))
                    task.add_done_callback(forget)
                await asyncio.sleep(PAUSE)
        finally:
            for task in clients:
                task.cancel()

    async def _answer(self, connection: socket.socket) -> None:
        loop, request = asyncio.get_running_loop(), b""
        with connection, contextlib.suppress(Exception):
            connection.setblocking(False)
            async with asyncio.timeout(DEADLINE):
                for _ in range(PIECES):
                    piece = await loop.sock_recv(connection, LONGEST - len(request))
                    request += piece
                    if not piece or b"\r\n\r\n" in request or len(request) >= LONGEST:
                        break
                await loop.sock_sendall(connection, await self._response(request))

    async def _response(self, request: bytes) -> bytes:
        """Returns the whole answer to a request's head."""
        head, end, _ = request.partition(b"\r\n\r\n")
        method, _, rest = head.partition(b" ")
        target = rest.partition(b" ")[0].partition(b"?")[0]
        if not end:
            status, kind, body = "400 Bad Request", TEXT, b""
        elif method != b"GET":
            status, kind, body = "405 Method Not Allowed", TEXT, b""
        elif target != contract.METRICS_PATH.encode():
            status, kind, body = "404 Not Found", TEXT, b""
        else:
            kind = OPEN_METRICS if b"application/openmetrics-text" in head.lower() else TEXT
            status, body = "200 OK", await self._metrics()
        lines = (
            f"HTTP/1.1 {status}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        return "\r\n".join([*lines, "", ""]).encode() + body

    async def _metrics(self) -> bytes:
        now = time.monotonic()
        if now - self._made < CACHE_SECONDS:
            return self._text
        pod = self._look()
        if self._read is None and now - self._read_at >= READ_AGAIN:
            self._read_at = now
            self._read = asyncio.create_task(self._read_volume(pod))
        if self._read is not None:
            # A volume that hangs holds up one thread, and no answer.
            await asyncio.wait({self._read}, timeout=WAIT)
        self._text = exposition(samples(pod, self._progress), training_job=pod.job).encode(
            errors="replace"
        )
        self._made = time.monotonic()
        return self._text

    async def _read_volume(self, pod: PodFacts) -> None:
        try:
            self._progress = await background.call(
                lambda: read_progress(pod.folder, pod.attempt) if pod.running else []
            )
        except OSError:
            self._progress = []
        finally:
            self._read = None
