"""Copies the workers' output to their logs on the volume, byte for byte, and to the pod's own
output, line by line.

Neither a full volume nor a pod output that nobody reads stops a worker or the agent.
"""

import contextlib
import os
import queue
import re
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from paddle_node.environment import PodEnvironment
from paddle_node.training.step_log import LineMetrics
from paddle_node.volume import durable
from paddle_node.volume.steps import one_line

LONGEST_LINE = 64 * 1024
"""Bytes without a line end after which they are passed on anyway."""
QUEUE_BYTES = 16 << 20
"""Bytes that may wait for the volume before a worker has to."""
READER = 1.0
"""Seconds for which the pod's own output may block before lines are left out."""
LAST_WORDS = 5.0
"""Seconds before its end in which a process that waited in silence prints why it ends."""
BAR_INTERVAL = 5.0
"""Seconds between two looks of a progress bar that are passed on."""
LONGEST_ERROR = 300
"""Characters of an exception that a message carries."""


_RANK = re.compile(r"\[(?:rank|default)\d+\]: ?")
"""What torch writes before each line of a rank's traceback."""
_CHAINED = re.compile("(The above|During handling of the above) exception")
_OF_LAUNCHER = re.compile(r"torch\.distributed\.elastic\.[\w.]*ChildFailedError:")
"""torchrun's own error, after those of its ranks: it says only that one of them failed."""


class _Output:
    def __init__(self) -> None:
        self._writing = threading.Lock()
        self._left_out = 0

    def write(self, lines: bytes) -> None:
        """Waits at most once for a missing reader; after that, leaves lines out until a reader
        comes.
        """
        with self._writing, contextlib.suppress(OSError):
            left = memoryview(lines)
            if self._left_out:
                prefixed = (
                    f"\n[agent] {self._left_out} lines that nobody read are left out; the logs "
                    "on the volume have them\n"
                )
                left = memoryview(prefixed.encode() + lines)
            while left:
                if not select.select((), (sys.stdout,), (), 0 if self._left_out else READER)[1]:
                    self._left_out += min(left.tobytes().count(b"\n"), lines.count(b"\n"))
                    return
                # PIPE_BUF bytes can be written without blocking.
                left = left[os.write(sys.stdout.fileno(), left[: select.PIPE_BUF]) :]
            self._left_out = 0


_output = _Output()


def say(prefix: str, *lines: str) -> None:
    """Writes lines to the pod's own output, never mixed with others."""
    _output.write("".join(f"[{prefix}] {line}\n" for line in lines).encode(errors="replace"))


def say_as_agent(pod: PodEnvironment, text: str) -> None:
    """Writes `text` as one line of that pod's agent."""
    say(f"agent {'?' if pod.index is None else pod.index}", one_line(text))


class _Copy(threading.Thread):
    """A log file on the volume. Its own thread writes it, so a slow or absent server does not delay
    a worker. Raises OSError if it cannot be opened.
    """

    def __init__(self, path: Path, give_up: Callable[[OSError], None]) -> None:
        super().__init__(name=f"copy to {path}", daemon=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = durable.Writer(path, os.O_CREAT | os.O_APPEND)
        self._give_up = give_up
        self._parts: list[bytes] = []
        self._changed = threading.Condition()
        self._ended = self.failed = False
        self.start()

    def put(self, part: bytes) -> None:
        """Hands on bytes; waits while very many wait already."""
        with self._changed:
            self._changed.wait_for(lambda: self.failed or sum(map(len, self._parts)) < QUEUE_BYTES)
            self._parts.append(part)
            self._changed.notify_all()

    def end(self) -> None:
        """Waits until everything is written."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self.join()

    def run(self) -> None:
        with self._file:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._parts or self._ended)
                    content, self._parts = b"".join(self._parts), []
                    self._changed.notify_all()
                if not content:
                    return
                try:
                    self._file.write(content)
                except OSError as error:
                    self.failed = True
                    self._give_up(error)
                    return


class Exceptions:
    """Finds in lines of output the last exception, or the interpreter's own error, and where in the
    program it was raised.
    """

    def __init__(self) -> None:
        self.last = ""
        self.behind = True
        """Whether output follows the exception; also if there is no exception."""
        self.beside = False
        """Whether anything but tracebacks was said."""
        self._place: str | None = None
        """The place that the current traceback names, as far as it is known; None: no traceback is
        being read.
        """

    def read(self, line: str) -> None:
        line = _RANK.sub("", line)
        begins = line.endswith("Traceback (most recent call last):")
        if line.strip():
            self.behind = True
            inside = begins or self._place is not None or _CHAINED.match(line)
            self.beside = self.beside or not inside
        if begins:
            self._place = ""
        elif (frame := re.match(r'\s+File "([^"]+)", line (\d+)(, in |$)', line)) and (
            self._place is not None or not frame[3]
        ):
            # The program's own line says more than that of a library it called.
            if not self._place or "/site-packages/" not in frame[1]:
                self._place = f" ({Path(frame[1]).name}:{frame[2]})"
        elif self._place is not None and re.match(r"[\w.]+(:|$)", line):
            if self.last and _OF_LAUNCHER.match(line):
                self._place = None
                return
            self.last = line[: LONGEST_ERROR - len(self._place)] + self._place
            self._place, self.behind = None, False
        elif match := re.match(
            r"(?:\S*/)?python[\d.]*: (No module named .*|can't open file .*|Error while finding "
            r".*)",
            line,
        ):
            self.last, self.behind = f"python: {match[1]}"[:LONGEST_ERROR], False


class Log(threading.Thread):
    """Copies a worker's output to its log, byte for byte, and to the pod's output, line by line."""

    def __init__(self, source: IO[bytes], name: str) -> None:
        super().__init__(name=f"log of {name}", daemon=True)
        self._source = source
        self._of = name
        self._path: Path | None = None
        self._file: _Copy | None = None
        self._early = b""
        self.last_output = self._spoke = time.monotonic()
        self._paused = 0.0
        self._shown = -BAR_INTERVAL
        """When a progress bar was passed on."""
        self.last_line = ""
        self.exceptions = Exceptions()
        self._metrics: LineMetrics | None = None
        self._begins: queue.SimpleQueue[tuple[Path, str, bytes]] = queue.SimpleQueue()

    def become(self, path: Path, name: str, header: str, metrics: LineMetrics | None) -> None:
        """Attributes further output to `name`; a line with `header` in its log separates this
        attempt from the one before.
        """
        began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._metrics = metrics
        self._begins.put((path, name, f"---- {header}, {began} ----\n".encode()))

    def run(self) -> None:
        rest = b""
        while part := os.read(self._source.fileno(), 65536):
            now = time.monotonic()
            if (pause := now - self.last_output) > LAST_WORDS:
                self._spoke, self._paused = now, pause
            self.last_output = now
            self._begin()
            self._write(part)
            *lines, rest = (rest + part).split(b"\n")
            if len(rest) > LONGEST_LINE:
                lines.append(rest)
                rest = b""
            self._pass_on(lines)
            # A progress bar returns to the line's beginning, and is whole once it goes on.
            *bars, rest = re.split(rb"\r+(?=[^\r])", rest)
            self._read_bars(bars, now)
        self._begin()
        if rest:
            self._pass_on([rest])
        if self._metrics is not None:
            self._metrics.log.flush()
            for name, pattern in self._metrics.unseen.items():
                say(
                    self._of,
                    f"metrics.{name}: no line matched {pattern} with a number as its first group",
                )
        self._source.close()
        if self._file is not None:
            self._file.end()

    @property
    def world(self) -> int:
        """The last number that the pattern of the metric `world_size` has matched; 0: none."""
        return self._metrics.reader.world if self._metrics is not None else 0

    @property
    def unmatched(self) -> Mapping[str, str]:
        """Patterns of metrics that no line has matched, by the metric; of rank 0 alone."""
        return dict(self._metrics.unseen) if self._metrics is not None else {}

    @property
    def tells_world(self) -> bool:
        return self._metrics is not None and self._metrics.reader.tells_world

    def measure_silence(self, end: float) -> float:
        """Returns for how many seconds the process had written nothing when it ended, or before its
        last words.
        """
        if end - self.last_output > LAST_WORDS:
            return end - self.last_output
        return self._paused if end - self._spoke <= LAST_WORDS else 0.0

    def _read_bars(self, bars: list[bytes], now: float) -> None:
        """Reads what a progress bar has shown, and passes some of it on."""
        texts = [text for bar in bars if (text := bar.decode(errors="replace").strip())]
        if not texts:
            return
        if self._metrics is not None:
            self._metrics.read(texts)
        if now - self._shown > BAR_INTERVAL:
            self._shown = now
            say(self._of, texts[-1])

    def _pass_on(self, lines: list[bytes]) -> None:
        if not lines:
            return
        texts = b"\n".join(lines).decode(errors="replace").split("\n")
        for text in texts:
            self.exceptions.read(text)
        if self._metrics is not None:
            # A progress bar returns to the line's beginning.
            self._metrics.read([part for text in texts for part in text.split("\r") if part])
        excerpts = (text.strip()[:LONGEST_ERROR] for text in reversed(texts))
        self.last_line = next(filter(None, excerpts), self.last_line)
        say(self._of, *texts)

    def _begin(self) -> None:
        while not self._begins.empty():
            self._path, self._of, header = self._begins.get()
            try:
                self._file = _Copy(self._path, self._give_up)
            except OSError as error:
                self._give_up(error)
            self._write(header + self._early)
            self._early = b""

    def _write(self, part: bytes) -> None:
        if self._path is None:
            self._early = (self._early + part)[-LONGEST_LINE:]
        if self._file is not None and not self._file.failed:
            self._file.put(part)

    def _give_up(self, error: OSError) -> None:
        say(
            self._of,
            f"{self._path} takes no lines: {error.strerror or error}; they continue in this "
            "pod's own log",
        )
