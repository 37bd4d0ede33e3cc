"""Reads a user's file strictly: YAML settings, or JSON that another tool wrote.

Promises: for any path, the result is the file's content or a `SettingError` with one sentence, in
little time and memory. This holds for a folder, a FIFO, 100 MB, 3,000 brackets, 5,000 digits, and
aliases that stand for a billion values. No key is given twice, every key is text, and every number
is one that JSON and Kubernetes accept too. Imports no aws_cdk.
"""

import hashlib
import math
import os
import re
import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from paddle_settings.errors import SettingError as SettingError

MOST_BYTES = 1 << 20
MOST_VALUES = 100_000
"""Values behind an alias count each time that it occurs."""
LONGEST_KEY = 1024
"""Characters; YAML's own limit for a key that is not marked with `?`."""
_ODD_NUMBER = re.compile(r"[-+]?0[\d_]|.*:")
"""What YAML reads by other bases, as few people mean it: 010 is 8, and 1:30 is 90."""
_KINDS = {type(None): "nothing", list: "a list", str: "text"}


def mapping(path: Path) -> dict[str, Any]:
    """Returns the content of the YAML file."""
    content = text(path)
    try:
        settings = _load(content)
    except yaml.YAMLError as error:
        raise SettingError(f"{path} is not valid YAML: {_flat(error)}") from None
    except RecursionError:
        raise SettingError(
            f"{path} is nested too deeply: allowed are `setting: value` lines"
        ) from None
    if not isinstance(settings, dict):
        raise SettingError(
            f"{path} holds {_KINDS.get(type(settings), 'one value')}: allowed are `setting: value` "
            "lines"
        )
    return settings


def value(content: str) -> Any:
    """Returns the Python value of a YAML node. Raises yaml.YAMLError with one sentence."""
    try:
        return _load(content)
    except yaml.YAMLError as error:
        raise yaml.YAMLError(_flat(error)) from None
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None


def text(path: Path) -> str:
    """Returns the file's text, at most `MOST_BYTES` bytes."""
    try:
        # A FIFO that nobody writes to would block a plain `open` forever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise SettingError(f"{path} is not a file: name a settings file")
            if status.st_size > MOST_BYTES:
                raise SettingError(
                    f"{path} has {status.st_size:,} bytes: at most {MOST_BYTES:,} are allowed in "
                    "a settings file"
                )
            return stream.read(MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise SettingError(f"{path} is missing: name an existing settings file") from None
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingError(
            f"{path} is not UTF-8 text: byte {error.start} is invalid; save it as UTF-8"
        ) from None


def _load(content: str) -> Any:
    loader = _Strict(content)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _values(node, {}) > MOST_VALUES:
            raise yaml.YAMLError(
                f"it stands for more than {MOST_VALUES:,} values, those of its aliases each time"
            )
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _values(node: yaml.Node, counts: dict[int, float]) -> float:
    """Returns how many values a node has, counting those of an alias each time; infinite if it
    contains itself.
    """
    if id(node) not in counts:
        counts[id(node)] = math.inf
        inside = node.value if isinstance(node, yaml.SequenceNode) else ()
        if isinstance(node, yaml.MappingNode):
            inside = [part for pair in node.value for part in pair]
        counts[id(node)] = 1 + sum(_values(part, counts) for part in inside)
    return counts[id(node)]


class _Strict(yaml.SafeLoader):
    """YAML that refuses unusable numbers and a key given twice, of which the plain loader silently
    takes the last.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise _fault(node, "`!!map` stands before a value that is not a group of settings")
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                # `<<: *shared`: the group's own keys override what it brings, as YAML specifies.
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise _fault(
                    key_node,
                    "a list or a group of settings stands where the name of a setting belongs",
                )
            if key_node.tag == "tag:yaml.org,2002:bool" and key_node.value.lower() == "no":
                # A name of a setting, as YAML 1.2 reads it.
                key_node.tag = "tag:yaml.org,2002:str"
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _fault(
                    key_node,
                    f"the key {key_node.value[:60] or 'empty'} is not text: put it in quotes",
                )
            if len(key) > LONGEST_KEY:
                raise _fault(
                    key_node, f"a key has {len(key)} characters: at most {LONGEST_KEY} are allowed"
                )
            if key in seen:
                raise _fault(key_node, f"{key} is given twice")
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return super().construct_object(node, deep)
        shown = f"{node.value[:60]}..." if len(node.value) > 60 else node.value or "empty"
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, OverflowError):
            # PyYAML's own converters fail on 5,000 digits, 2001-99-99 and `!!bool maybe`.
            raise _fault(
                node, f"{shown} is not a value of its kind: put it in quotes where it is text"
            ) from None
        if (isinstance(value, float) and not math.isfinite(value)) or (
            isinstance(value, int) and value.bit_length() > 64
        ):
            raise _fault(node, f"{shown} is not a number that a setting takes")
        if type(value) in (int, float) and _ODD_NUMBER.match(node.value):
            raise _fault(
                node,
                f"{shown} would be {value}: write the number without colons or zeros in "
                "front, or put text in quotes",
            )
        return value


def _fault(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _flat(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark else ""
    problem = str(getattr(error, "problem", None) or error)
    if problem.startswith("but "):
        problem = f"{getattr(error, 'context', '')} {problem}"
    return where + " ".join(problem.split())


def cache_path(kind: str, *of: object) -> Path:
    """Returns the path in this machine's cache, `~/.cache/paddle-aws`, for files of a kind (such as
    environments) that are made from `of`. Creates nothing there.
    """
    name = hashlib.sha256("\n".join(map(str, of)).encode()).hexdigest()[:32]
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "paddle-aws" / kind / name
