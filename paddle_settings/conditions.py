"""When a setting counts: metadata of its field, from which refusals, schemas and pages come.

A setting that is written and cannot have an effect is refused. A value that asks for nothing
(false, 0, an empty list, where that is the default) may stand anywhere.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel


@dataclass(frozen=True)
class Counts:
    """The condition under which a setting has an effect.

    Args:
        only: the condition in words, after "it counts only".
        holds: whether it holds; gets the setting's group and the whole file.
        instead: what to do beside leaving the setting out.
    """

    only: str
    holds: Callable[[Any, Any], bool]
    instead: str = ""


def in_file(only: str, holds: Callable[[Any], bool], instead: str = "") -> Counts:
    """Returns a condition of the whole file."""
    return Counts(only, lambda _, file: holds(file), instead)


def in_group(only: str, holds: Callable[[Any], bool], instead: str = "") -> Counts:
    """Returns a condition of the setting's own group."""
    return Counts(only, lambda group, _: holds(group), instead)


class Given(NamedTuple):
    """A setting that a file gives, with its conditions."""

    path: str
    value: Any
    group: BaseModel
    conditions: tuple[Counts, ...]
    default: Any
    """The value without which it asks for nothing, if that is none that does."""


def conditions(group: type[BaseModel], name: str) -> tuple[Counts, ...]:
    """Returns the conditions of a group's field."""
    return tuple(part for part in group.model_fields[name].metadata if isinstance(part, Counts))


def given(group: BaseModel, path: str = "") -> Iterator[Given]:
    """Yields the settings that were given for a group, and those inside them."""
    for name, field in type(group).model_fields.items():
        if name not in group.model_fields_set or name not in group.__dict__:
            continue
        value, here = group.__dict__[name], f"{path}{field.alias or name}"
        yield Given(here, value, group, conditions(type(group), name), field.default)
        yield from _inside(value, here)


def _inside(value: Any, path: str) -> Iterator[Given]:
    if isinstance(value, BaseModel):
        yield from given(value, f"{path}.")
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _inside(inner, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _inside(inner, f"{path}[{number}]")
