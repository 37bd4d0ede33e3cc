"""Writes the trace of a run while it goes on: its clock, its lines, and what they report."""

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from paddle_node.volume.steps import LINE_LENGTH, LineReader, one_line

from paddle_aws.storm.calls import Call
from paddle_aws.storm.ranks import Rank, Ranks
from paddle_aws.storm.trace import Event, Trace

_LINE_BYTES = 2000
"""Bytes of a line without an end that are kept."""
_BETWEEN = re.compile(r"[\s,;(){}\[\]|\"'*]+")
_NAME = re.compile(r"[A-Za-z_][\w.@/-]*[:=]?")
_NUMBER = re.compile(
    r"(?:([A-Za-z_][\w.@/-]*)[:=])?([-+]?(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|nan|inf))[.%:]?"
)
_GLOG = re.compile(r"[IWEF]\d{4} ")
"""How lines of Paddle about itself begin."""


class Recorder:
    """Records one run. Its `trace` is complete after `finish`."""

    def __init__(self, metrics: Mapping[str, str], ranks: Ranks) -> None:
        """`metrics`: the job's patterns of lines that report steps."""
        self.trace, self._reader, self._ranks = Trace(), LineReader(metrics), ranks
        self._texts: dict[tuple[int, int], bytes] = {}
        """The begun line of each process's open file."""
        self._results: dict[int, dict[str, float]] = {}
        """By rank: the job's metrics in lines without a step; where it has none, the numbers in the
        last line with any.
        """
        self.begin()

    def begin(self) -> None:
        """Starts the clock."""
        self._began = self._last = time.monotonic()

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    @property
    def silence(self) -> float:
        """Seconds since the last sign of life."""
        return time.monotonic() - self._last

    def say(self, text: str) -> None:
        """Adds a line to the trace."""
        self.trace.lines.append(f"{self.now:7.2f}  {one_line(text)}")

    def note_life(self) -> None:
        """Notes that something has happened."""
        self.trace.longest_silence = max(self.trace.longest_silence, self.silence)
        self._last = time.monotonic()

    def add(self, kind: str, rank: Rank, path: str = "") -> None:
        """Adds an event of a rank."""
        self.trace.events.append(Event(kind, self.now, rank.attempt, rank.rank, path=path))

    def count(self, kind: str) -> int:
        """Returns how many events of a kind there were."""
        return sum(event.kind == kind for event in self.trace.events)

    def has_reported(self, step: int | None) -> bool:
        """Whether any rank has reported `step` or a later one; None: there is none to report."""
        steps = [event.step or 0 for event in self.trace.events if event.kind == "step"]
        return step is None or max(steps, default=0) >= step

    def read_printed(self, call: Call) -> None:
        """Reads the lines that a call has printed."""
        if call.does != "print":
            return
        with suppress(OSError):
            rank = self._ranks.find(call.process)
            if rank is None:
                return
            key = call.process, call.arguments[0]
            *lines, rest = re.split(rb"[\r\n]", self._texts.get(key, b"") + call.text)
            self._texts[key] = rest[-_LINE_BYTES:]
            if rank.trains:
                for line in lines:
                    self._read_line(line.decode(errors="replace"), replace(rank, pid=call.process))
            call.drop_text()

    def _read_line(self, line: str, rank: Rank) -> None:
        if not line.strip():
            return
        self.say(f"rank {rank.rank}: {line[:300]}")
        step, metrics = self._reader.parse(line)
        if step is not None:
            self._ranks.reporting[rank.rank] = rank
            self._add_step(rank, step, metrics)
            return
        if self._reader.metrics:
            self._results.setdefault(rank.rank, {}).update(metrics)
        elif (values := read_numbers(line)) and not _GLOG.match(line):
            self._results[rank.rank] = values

    def _add_step(self, rank: Rank, step: int, metrics: Mapping[str, float]) -> None:
        self.trace.add_step(Event("step", self.now, rank.attempt, rank.rank, step, metrics))

    def read_begun_line(self, call: Call, rank: Rank) -> None:
        """Notes a step whose line has not ended yet: `print` writes the end of a line by itself.
        The rest of the line is read when it has ended.
        """
        rest = self._texts.get((call.process, call.arguments[0]), b"").decode(errors="replace")
        if rank.trains and (step := self._reader.parse(rest).step) is not None:
            self._add_step(rank, step, {})

    def find_step(self, call: Call) -> int | None:
        """Returns the newest step in a text that is about to be printed."""
        key = call.process, call.arguments[0]
        text = (self._texts.get(key, b"") + call.text).decode(errors="replace")
        steps = [self._reader.parse(line).step for line in re.split(r"[\r\n]", text)]
        return next((step for step in reversed(steps) if step is not None), None)

    def finish(self) -> None:
        """Completes what the trace says of times and results."""
        self.note_life()
        self.trace.seconds = self.now
        lowest = min(self._results, default=None)
        if lowest is not None:
            self.trace.last = self._results[lowest]


def read_numbers(line: str) -> dict[str, float]:
    """Returns the numbers in a line by the words before them, or by their places. Digits inside a
    path, a name, a date or a time are no number.
    """
    values: dict[str, float] = {}
    name, place = "", 0
    for token in filter(None, _BETWEEN.split(line[:LINE_LENGTH])):
        match = _NUMBER.fullmatch(token)
        if match is None:
            name = token if _NAME.fullmatch(token) else f"{name}:" if token in ":=" else ""
            continue
        if not (match[1] or match[2][-1].isdigit() or name[-1:] in (":", "=")):
            continue  # "no nan": words of a sentence.
        place += 1
        key = match[1] or name.rstrip(":=") or f"number {place}"
        values[key if key not in values else f"{key} {place}"] = float(match[2])
        name = ""
    return values
