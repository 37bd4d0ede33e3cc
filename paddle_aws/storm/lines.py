"""Reads a program's lines: steps, the job's metrics, or any numbers; and writes counts."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress

import re2

_TOLD = re2.compile(r"paddle_node: step (\d+) (\{.*\})$")
"""A step of a program on our API (paddle_node.training.step_log)."""
_BETWEEN = re.compile(r"[\s,;(){}\[\]|\"'*]+")
_NAME = re.compile(r"[A-Za-z_][\w.@/-]*[:=]?")
_NUMBER = re.compile(
    r"(?:([A-Za-z_][\w.@/-]*)[:=])?([-+]?(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|nan|inf))[.%:]?"
)
_LONGEST = 2000
"""Characters of a line that are read."""
GLOG = re.compile(r"[IWEF]\d{4} ")
"""How lines of Paddle about itself begin."""


class LineReader:
    """Reads lines by a job's patterns; `step` is that of the step's number."""

    def __init__(self, metrics: Mapping[str, str]) -> None:
        self.patterns = {
            name: re2.compile(pattern) for name, pattern in metrics.items() if name != "world_size"
        }
        self._step_pattern = self.patterns.pop("step", None)

    def read_step(self, line: str) -> tuple[int, Mapping[str, float]] | None:
        """Returns the step that a line reports, and its metrics; None: it reports none."""
        # A program may print anything.
        with suppress(TypeError, ValueError, OverflowError, RecursionError):
            return self._read_step(line)
        return None

    def _read_step(self, line: str) -> tuple[int, Mapping[str, float]] | None:
        if match := _TOLD.search(line[:_LONGEST]):
            metrics: dict[str, float] = json.loads(match[2])
            return int(match[1]), {printable(name): float(value) for name, value in metrics.items()}
        if self._step_pattern is None or not (match := self._step_pattern.search(line[:_LONGEST])):
            return None
        parts = match.groupdict()
        step = (
            int((float(parts["epoch"]) - 1) * float(parts["iterations"])) + int(parts["iteration"])
            if set(parts) == {"epoch", "iteration", "iterations"}
            else int(float(match[1]))
        )
        return step, self.read_metrics(line)

    def read_metrics(self, line: str) -> dict[str, float]:
        """Returns the job's metrics in a line."""
        metrics = {}
        for name, pattern in self.patterns.items():
            with suppress(TypeError, ValueError):
                if value := pattern.search(line[:_LONGEST]):
                    metrics[name] = float(value[1])
        return metrics


def read_numbers(line: str) -> dict[str, float]:
    """Returns the numbers in a line by the words before them, or by their places. Digits inside a
    path, a name, a date or a time are no number.
    """
    values: dict[str, float] = {}
    name, place = "", 0
    for token in filter(None, _BETWEEN.split(line[:_LONGEST])):
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


def count(number: int, noun: str) -> str:
    """Returns a number of things: `1 run`, `2 runs`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def printable(text: str) -> str:
    """Returns a line with its control characters written out, for a terminal."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
