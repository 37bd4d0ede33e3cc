"""Settings given on a command line, `SETTING=VALUE`, in place of a file's own.

A value is read as in the file: 4 is a number, [a, b] a list. Anything else is text exactly as
typed, including `:` and `#`.
"""

import copy
import json
import os
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from paddle_settings import file as settings_file
from paddle_settings.errors import SettingError

WORDS = ("command", "resume")
"""Settings that are a line or a list of words: an appended text follows after a blank, or as more
words.
"""
TEXTS = ("environment", "metrics")
"""Groups whose values are text, also 4 or true."""


def apply(settings: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Returns the settings with each `a.b=value` set, and each `a.b+=value` appended, in order; an
    empty value unsets. Raises SettingError.

    >>> apply({"trainers": 2, "command": "python train.py"}, ["trainers=4", "command+=--epochs 9"])
    {'trainers': 4, 'command': 'python train.py --epochs 9'}
    """
    result = copy.deepcopy(dict(settings))
    for override in overrides:
        name, equals, text = override.partition("=")
        path = name.removesuffix("+").strip().split(".")
        if not equals or not all(path):
            raise SettingError(
                f"--set is {override}: SETTING=VALUE is allowed, such as trainers=4 or "
                "data.source=a.tsv, and SETTING+=VALUE, which appends"
            )
        group = _group(result, path, override)
        if name.endswith("+"):
            group[path[-1]] = _append(group.get(path[-1]), path, text)
        elif text:
            group[path[-1]] = _value(path, text)
        else:
            group.pop(path[-1], None)
    return result


def from_mapping(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the overrides that turn an empty file into these settings. Raises SettingError for a
    value that no file can hold.
    """
    try:
        return tuple(
            f"{name}={json.dumps(value, default=os.fspath, allow_nan=False)}"
            for name, value in settings.items()
        )
    except (TypeError, ValueError) as error:
        raise SettingError(f"the job's settings cannot be written as YAML: {error}") from None


def _group(settings: dict[str, Any], path: list[str], override: str) -> dict[str, Any]:
    """Returns the group that holds the setting at `path`; makes the groups that are missing."""
    group = settings
    for depth, name in enumerate(path[:-1], start=1):
        inner = group.setdefault(name, {})
        if not isinstance(inner, dict):
            raise SettingError(
                f"--set is {override}: {'.'.join(path[:depth])} is {inner!r} in the job file, not "
                "a group of settings"
            )
        group = inner
    return group


def _value(path: list[str], text: str) -> Any:
    """Returns a value as the file would hold it."""
    if path[0] in TEXTS and len(path) > 1:
        return text
    try:
        value = settings_file.value(text)
    except yaml.YAMLError as error:
        if text[0] in "[{\"'":
            raise SettingError(f"--set {'.'.join(path)} is {text}: {error}") from None
        return text
    typed = isinstance(value, bool | int | float) or text[0] in "[{\"'"
    return value if typed else text


def _append(value: Any, path: list[str], text: str) -> Any:
    """Returns the present value of the setting at `path` with what is typed after `+=`."""
    name = ".".join(path)
    if name in WORDS:
        if value is None or isinstance(value, str):
            return " ".join(filter(None, (value, text)))
        if isinstance(value, list):
            return [*value, *shlex.split(text)]
    added = _value(path, text)
    if value is None or isinstance(value, list):
        return [*(value or ()), *(added if isinstance(added, list) else (added,))]
    raise SettingError(
        f"--set {name}+= appends to a list, or to the words of {' and '.join(WORDS)}: {name} is "
        f"{value!r}"
    )
