"""Reads a JSON document as the dataclass that it describes; ignores fields that the dataclass does
not have.
"""

import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, dataclass_transform, get_args, get_origin, get_type_hints

_WORDS = {
    str: "a text",
    int: "a whole number from 0 to 2^63 - 1",
    float: "a number",
    bool: "true or false",
    tuple: "a list",
    list: "a list",
}
LARGEST = 2**63 - 1
"""A larger number counts nothing, and does not fit into a float's arithmetic."""
_RANGES: dict[Any, tuple[float, float]] = {
    int: (0, LARGEST),
    float: (-sys.float_info.max, sys.float_info.max),  # Neither infinite nor beyond a float.
}


@dataclass_transform(frozen_default=True)
class Frozen:
    """A base whose every subclass becomes a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class Untyped(ValueError):
    """Names the field, what it holds, and what is allowed."""


def read(kind: Any, value: Any, name: str) -> Any:
    """Returns `value`, called `name`, as a `kind`: a dataclass, a plain type, a Literal, or a
    collection or union of those.
    """
    if kind is Any or (
        type(value) is kind and (kind is str or (kind is int and 0 <= value <= LARGEST))
    ):
        return value  # Fast for most fields: a manifest may have a million files.
    if get_origin(kind) is UnionType:
        kind, other = get_args(kind)
        return None if value is None and other is type(None) else read(kind, value, name)
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
        raise Untyped(f"{name} is {value!r}, not {' or '.join(map(repr, get_args(kind)))}")
    described = is_dataclass(kind)
    outer = dict if described else get_origin(kind) or kind
    allowed: Any = {tuple: list, float: (int, float), Mapping: dict}.get(outer, outer)
    fits = isinstance(value, allowed) and isinstance(value, bool) == (kind is bool)
    if fits and kind in _RANGES:
        least, most = _RANGES[kind]
        fits = least <= value <= most
    if not fits:
        raise Untyped(f"{name} is {value!r}, not {_WORDS.get(outer, 'an object')}")
    if described:
        return kind(
            **{
                key: read(hint, value.get(key), key)
                for key, hint, needed in _fields(kind)
                if needed or key in value
            }
        )
    inner = get_args(kind)
    if outer in (tuple, list):
        kinds = inner[:1] * len(value) if outer is list or inner[-1] is Ellipsis else inner
        return outer(
            read(hint_, item, f"one of {name}") for hint_, item in zip(kinds, value, strict=True)
        )
    if outer is Mapping or inner:
        return {key: read(inner[1], item, key) for key, item in value.items()}
    return outer(value)


@cache
def _fields(kind: Any) -> list[tuple[str, Any, bool]]:
    """Returns the name and type of each field, and whether it has no default."""
    hints = get_type_hints(kind)
    return [
        (
            field_.name,
            hints[field_.name],
            field_.default is MISSING and field_.default_factory is MISSING,
        )
        for field_ in fields(kind)
    ]
