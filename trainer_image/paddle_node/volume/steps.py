"""A training's steps: as a program's lines tell them, and as the volume keeps them, a JSON object
per line of `steps-<rank>.jsonl`.

Any program can write both, so nothing in them is trusted: what is cut off, or is no step, is left
out. A value that is not finite stays what it is: NaN or an infinity.
"""

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from paddle_node.command_line import compile_pattern
from paddle_node.volume import durable
from paddle_node.volume.job_folder import JobFolder

STEP = "step"
WORLD_SIZE = "world_size"
"""The metric that is no number of a step, but how many ranks the program has."""
LARGEST = 1e18
"""Steps that a program can have made at most."""
LINE_LENGTH = 2000
"""Characters of a printed line that are searched."""
MOST_READ = 16
"""Lines with metrics that are read of those that came together, beside the last of each metric:
more come from a program that prints faster than anybody can read, and a sample is as good.
"""
LINES_ABOVE = 20
"""Lines above one with metrics in which its step is sought."""
FILE = re.compile(r"steps-([0-9]{1,6})\.jsonl")
TAIL = 65_536
"""Bytes at the end of a file that hold the newest steps."""
FILE_BYTES = 4 << 20
"""Bytes of a file from which it is not read whole; a rank rarely writes a tenth of that."""
NAMES, NAME_LENGTH = 50, 100
"""Most metrics of a step, and most characters of a name."""
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Strings in the files, as JSON has no such numbers."""
_PRINTED = re.compile(r"paddle_node: step (\d{1,18}) (\{.*\})$")


@dataclass(frozen=True)
class Step:
    """A line of a rank's file: the means since the line before."""

    attempt: int
    step: int
    time: float
    """Seconds since 1970."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    pass_number: int | None = None
    """None: the program reports no passes, and nothing of the following."""
    passes: int | None = None
    pass_step: int | None = None
    """The step's number in the pass."""
    records: int | None = None
    """Those of the pass that the rank has read so far."""
    shard: int | None = None
    """Those of a whole pass; 0: nobody has counted them."""
    trainers: int | None = None

    @property
    def all_records(self) -> int:
        """The records of all passes that the rank has read so far."""
        return (self.pass_number or 0) * (self.shard or 0) + (self.records or 0)


def encode(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Returns metrics as a file has them, with six digits."""
    return {
        name: float(f"{value:.6g}") if math.isfinite(value) else _name(value)
        for name, value in metrics.items()
    }


def _name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def parse(content: bytes) -> Iterator[Step]:
    """Yields the steps of a file, or of its end."""
    for line in content.split(b"\n"):
        with suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict) and (step := _step(entry)) is not None:
                yield step


def _step(entry: Mapping[str, Any]) -> Step | None:
    attempt, metrics = entry.get("attempt"), entry.get("metrics")
    number, time = finite(entry.get("step"), LARGEST), finite(entry.get("time"), 1e11)
    if type(attempt) is not int or number is None or not isinstance(metrics, dict):
        return None
    if time is None or time < 0:
        return None
    values = {
        one_line(name[:NAME_LENGTH]): decode(value) for name, value in list(metrics.items())[:NAMES]
    }
    numbers = {name: value for name, value in values.items() if value is not None}
    names = ("pass", "passes", "pass_step", "records", "shard", "trainers")
    counts = (finite(entry.get(name), LARGEST) for name in names)
    whole = (None if count is None else int(count) for count in counts)
    return Step(attempt, int(number), time, numbers, *whole)


def decode(value: object) -> float | None:
    """Returns a metric's value, None if it is none; null is not finite, of an earlier release."""
    if value is None or isinstance(value, str):
        return math.nan if value is None else _NOT_FINITE.get(str(value))
    if isinstance(value, float) and not math.isfinite(value):
        return value
    return finite(value)


def finite(value: object, most: float = math.inf) -> float | None:
    """Returns a value of a JSON document as a number up to `most`; None: it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and abs(number) <= most else None


def one_line(text: str) -> str:
    """Returns `text` with control characters and line ends as escapes: names of files, metrics and
    peers in it write no lines of their own, and give a terminal no orders.
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def read_newest(file: Path, attempt: int) -> list[Step]:
    """Returns the last steps of an attempt in a rank's file. Raises OSError."""
    return [step for step in parse(read_file(file, -TAIL)) if step.attempt == attempt]


def list_not_finite(newest: Iterable[Step]) -> list[str]:
    """Says of each metric that is not finite now since which step it is not."""
    since: dict[str, int] = {}
    now: dict[str, float] = {}
    for step in newest:
        for name, value in step.metrics.items():
            now[name] = value
            if math.isfinite(value):
                since.pop(name, None)
            else:
                since.setdefault(name, step.step)
    words = ("NaN" if math.isnan(now[name]) else "infinite" for name in since)
    return [
        f"{name} is {word} since step {step}"
        for (name, step), word in zip(since.items(), words, strict=True)
    ]


def read_file(file: Path, offset: int = 0) -> bytes:
    """Returns a file's content from a byte on, or so many bytes before its end; nothing of what is
    no file. Raises OSError.
    """
    if (stream := durable.open_file(file)) is None:
        return b""
    with stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(offset if offset >= 0 else max(0, size + offset))
        return stream.read(min(size, FILE_BYTES))


def first_report(folder: JobFolder, attempt: int) -> float | None:
    """Returns when rank 0 reported its first metrics in an attempt, in seconds since 1970: 0 if
    they are too many to read, None if it reported none.
    """
    file = folder.steps(0, 0)
    with suppress(OSError):
        if file.stat().st_size >= FILE_BYTES:
            return 0.0
        steps = parse(file.read_bytes())
        return next((step.time for step in steps if step.attempt == attempt), None)
    return None


class Report(NamedTuple):
    """What a program's line tells."""

    step: int | None
    metrics: Mapping[str, float]


def format_report(step: int | None, metrics: Mapping[str, float]) -> str:
    """Returns the line in which a program on our API prints a step."""
    return f"paddle_node: step {step} {json.dumps(dict(metrics))}\n"


def _parse_printed(line: str) -> Report | None:
    if "paddle_node: step " in line and (match := _PRINTED.search(line)):
        # A program may print anything.
        with suppress(TypeError, ValueError, OverflowError, RecursionError):
            values = json.loads(match[2])
            return Report(
                int(match[1]), {one_line(k[:NAME_LENGTH]): float(v) for k, v in values.items()}
            )
    return None


class LineReader:
    """Reads a program's lines by a job's patterns. The first group of each is the metric of that
    name; `step` is the step's number. Lines without a step, such as those behind a progress bar,
    belong to the step of the line before. The groups `epoch`, `iteration` and `iterations` together
    tell the number of a program that counts iterations anew in each epoch; `epochs` in place of
    `epoch` counts epochs from 0.
    """

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self._patterns = {name: compile_pattern(pattern) for name, pattern in patterns.items()}
        self._in_many = {
            name: compile_pattern(f"(?m){pattern}")
            for name, pattern in patterns.items()
            if name != WORLD_SIZE
        }
        self.metrics = set(patterns) - {STEP, WORLD_SIZE}
        """The names of a step's metrics."""
        self.unseen = dict(patterns)
        """Patterns with which no line has told a number yet."""
        self.step: int | None = None
        """The newest step."""
        self.world = 0
        """How many ranks the program says that it has; 0: it has not said so."""

    @property
    def tells_world(self) -> bool:
        """Whether one of the patterns is that of the world's size."""
        return WORLD_SIZE in self._patterns

    def parse(self, line: str) -> Report:
        """Returns what one line tells."""
        line = line[:LINE_LENGTH]
        if printed := _parse_printed(line):
            return printed
        numbers = {name: self._number(name, line) for name in self.metrics}
        metrics = {name: number for name, number in numbers.items() if number is not None}
        return Report(self._step_in(line), metrics)

    def matches(self, line: str) -> dict[str, Any]:
        """Returns the match of each pattern with which a line tells a number."""
        found = {
            name: pattern.search(line[:LINE_LENGTH]) for name, pattern in self._patterns.items()
        }
        return {name: match for name, match in found.items() if _number_in(match) is not None}

    def read(self, lines: Sequence[str]) -> Iterator[Report]:
        """Yields what lines tell that came together. Of many it reads a sample, and the last one of
        each pattern.
        """
        self._read_world(lines)
        reported, done = self.step, 0
        places = range(len(lines)) if len(lines) <= MOST_READ else self._choose(lines)
        for place in places:
            above = lines[max(done, place - LINES_ABOVE) : place]
            self.step = self._newest_step(above)
            report, done = self.parse(lines[place]), place + 1
            self.step = self.step if report.step is None else report.step
            if report.metrics:
                reported = self.step
                yield Report(self.step, report.metrics)
        if self.step != reported:
            yield Report(self.step, {})

    def _choose(self, lines: Sequence[str]) -> list[int]:
        """Returns the places of lines to read, in order."""
        chosen: set[int] = set()
        last: dict[str, range] = {}
        size = -(-len(lines) // MOST_READ)
        for begin in range(0, len(lines), size):
            part = range(begin, min(begin + size, len(lines)))
            text = "\n".join(lines[begin : part.stop]).encode(errors="replace")
            starts = []
            for name, pattern in self._in_many.items():
                if match := pattern.search(text):
                    last[name] = part
                    starts += [match.start()] if name in self.metrics else []
            if starts:
                chosen.add(begin + text.count(b"\n", 0, min(starts)))
        for name, part in last.items():
            search = self._patterns[name].search
            matches = (place for place in reversed(part) if search(lines[place][:LINE_LENGTH]))
            chosen.update([next(matches, part.start)])
        return sorted(chosen)

    def _read_world(self, lines: Iterable[str]) -> None:
        for line in lines if self.tells_world else ():
            size = self._number(WORLD_SIZE, line[:LINE_LENGTH])
            if size is not None and 0 < size <= LARGEST and size.is_integer():
                self.world = int(size)

    def _newest_step(self, lines: Sequence[str]) -> int | None:
        steps = (self._step_in(line[:LINE_LENGTH]) for line in reversed(lines))
        return next((step for step in steps if step is not None), self.step)

    def _step_in(self, line: str) -> int | None:
        number = self._number(STEP, line) if STEP in self._patterns else None
        return None if number is None or not abs(number) <= LARGEST else int(number)

    def _number(self, name: str, line: str) -> float | None:
        number = _number_in(self._patterns[name].search(line))
        if number is not None:
            self.unseen.pop(name, None)
        return number


def _number_in(match: Any) -> float | None:
    """Returns the number that a match tells: the first group; or, of epochs and iterations
    within them, how many iterations there were. None: it is no number.
    """
    # No match, a group that is not there, or no number.
    with suppress(AttributeError, IndexError, TypeError, ValueError):
        parts = match.groupdict()
        if "iterations" not in parts:
            return float(match[1])
        before = float(parts["epochs"]) if "epochs" in parts else float(parts["epoch"]) - 1
        return before * float(parts["iterations"]) + float(parts["iteration"])
    return None
