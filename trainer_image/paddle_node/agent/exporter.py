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
from collections.abc import Callable, Iterable, Mapping
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

Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    """Samples of one metric, all gauges: most may fall again when an attempt ends."""

    name: str
    help: str
    samples: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, value: float, **labels: str) -> None:
        """Adds a sample."""
        self.samples.append((tuple(labels.items()), value))


def exposition(families: Iterable[Family], **common: str) -> str:
    """Returns the families as OpenMetrics text, each sample with the labels `common`."""
    lines = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# TYPE {family.name} gauge", f"# HELP {family.name} {family.help}"]
        for labels, value in family.samples:
            text = ",".join(f'{name}="{_escape(v)}"' for name, v in (*common.items(), *labels))
            lines.append(f"{family.name}{{{text}}} {value!r}")
    return "\n".join([*lines, "# EOF\n"])


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@dataclass(frozen=True)
class Progress:
    """The progress of the present attempt in one step log."""

    rank: str
    step: int
    metrics: Mapping[str, float]
    pass_number: int | None
    steps_a_second: float | None
    records_a_second: float | None


def read_progress(folder: Path, attempt: int) -> list[Progress]:
    """Returns what the step logs in a pod's folder on the volume say about an attempt. Blocking.

    Programs write there, so it checks the kind of each file, and every line. Raises OSError.
    """
    with os.scandir(folder) as entries:
        names = [entry.name for entry in itertools.islice(entries, ENTRIES)]
    matches = [match for name in names if (match := steps.FILE.fullmatch(name)) is not None]
    progress = []
    for match in sorted(matches, key=lambda match: int(match[1]))[:RANKS]:
        if lines := steps.read_newest(folder / match[0], attempt):
            progress.append(_progress(match[1], lines))
    return progress


def _progress(rank: str, lines: list[Step]) -> Progress:
    # The last lines, which are at most ten seconds apart: a speed of about the last minute.
    newest, before = lines[-1], lines[-min(len(lines), 7)]
    seconds, made = newest.time - before.time, newest.step - before.step
    read, read_before = newest.records, before.records
    same_pass = newest.pass_number == before.pass_number
    return Progress(
        rank,
        newest.step,
        {name: value for step in lines for name, value in step.metrics.items()},
        newest.pass_number,
        made / seconds if seconds > 0 and made >= 0 else None,
        (read - read_before) / seconds
        if seconds > 0 and same_pass and read is not None and read_before is not None
        else None,
    )


@dataclass(frozen=True)
class Pod:
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


def families(pod: Pod, progress: Iterable[Progress]) -> list[Family]:
    """Returns a pod's metrics."""
    attempt = Family("paddle_attempt", "Number of the attempt that runs or ran last.")
    running = Family("paddle_attempt_running", "1 while an attempt runs in this pod.")
    step = Family("paddle_step", "The newest step that a rank reported.")
    number = Family("paddle_pass", "The pass that a rank is in.")
    metric = Family("paddle_step_metric", "A metric of the newest steps, such as loss.")
    speed = Family("paddle_steps_per_second", "Steps a second over about the last minute.")
    records = Family("paddle_records_per_second", "Records a second of this rank's shard.")
    seconds = Family("paddle_run_seconds", "Where the run's time went, as the mean over its pods.")
    goodput = Family("paddle_goodput_ratio", "Share of the run's time that trained and was kept.")
    slow = Family(
        "paddle_slow_trainer_ratio", "How many times the median a slow rank's step takes."
    )
    attempt.add(pod.attempt)
    running.add(float(pod.running))
    for rank in progress if pod.running else ():
        step.add(rank.step, rank=rank.rank)
        for name, value in rank.metrics.items():
            metric.add(value, rank=rank.rank, name=name)
        optional = (
            (number, rank.pass_number),
            (speed, rank.steps_a_second),
            (records, rank.records_a_second),
        )
        for family, amount in optional:
            if amount is not None:
                family.add(amount, rank=rank.rank)
    for part, spent in pod.seconds.items():
        seconds.add(round(spent, 3), part=part)
    if (whole := sum(pod.seconds.values())) > 0:
        goodput.add(round(pod.seconds.get("training", 0.0) / whole, 6))
    for rank_number, times in pod.slow.items():
        slow.add(round(times, 3), rank=str(rank_number))
    return [attempt, running, step, number, metric, speed, records, seconds, goodput, slow]


class Exporter:
    """Serves the facts that `look` returns, and the progress on the volume."""

    def __init__(self, look: Callable[[], Pod], say: Callable[[str], None]) -> None:
        self._look = look
        self._say = say
        self._text, self._made = b"", -math.inf
        self._progress: list[Progress] = []
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
        self._text = exposition(families(pod, self._progress), training_job=pod.job).encode(
            errors="replace"
        )
        self._made = time.monotonic()
        return self._text

    async def _read_volume(self, pod: Pod) -> None:
        try:
            self._progress = await background.call(
                lambda: read_progress(pod.folder, pod.attempt) if pod.running else []
            )
        except OSError:
            self._progress = []
        finally:
            self._read = None
