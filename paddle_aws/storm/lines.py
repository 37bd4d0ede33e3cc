"""Reads any numbers in a program's lines."""

import re

from paddle_node.volume.steps import LINE_LENGTH

_BETWEEN = re.compile(r"[\s,;(){}\[\]|\"'*]+")
_NAME = re.compile(r"[A-Za-z_][\w.@/-]*[:=]?")
_NUMBER = re.compile(
    r"(?:([A-Za-z_][\w.@/-]*)[:=])?([-+]?(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|nan|inf))[.%:]?"
)
GLOG = re.compile(r"[IWEF]\d{4} ")
"""How lines of Paddle about itself begin."""


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
