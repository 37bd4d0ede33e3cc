"""Every setting of job.yaml and cluster.yaml, by its path, with the conditions under which it
counts.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

from paddle_settings.conditions import Counts, conditions
from paddle_settings.model import Settings


class Setting(NamedTuple):
    """One setting of a file."""

    path: str
    """Its groups and its name; `*` stands for a name of the user's, `[]` for each entry."""
    conditions: tuple[Counts, ...]
    """Its own and those of the groups around it."""
    group: type[Settings]
    name: str
    is_group: bool


def settings(spec: type[Settings]) -> Iterator[Setting]:
    """Yields the settings of a file, the groups before what is in them."""
    yield from _settings(spec, "", ())


def _settings(group: type[Settings], above: str, outer: tuple[Counts, ...]) -> Iterator[Setting]:
    for name, field in group.model_fields.items():
        path, counts = f"{above}{field.alias or name}", (*outer, *conditions(group, name))
        inside = list(_groups(field.annotation, ""))
        yield Setting(path, counts, group, name, bool(inside))
        for between, inner in inside:
            yield from _settings(inner, f"{path}{between}.", counts)


def _groups(annotation: Any, between: str) -> Iterator[tuple[str, type[Settings]]]:
    """Yields the groups of settings that a type holds, and what stands before theirs."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield between, annotation
        return
    kind = getattr(annotation, "__origin__", None)
    more = ".*" if kind is dict else "[]" if kind in (list, tuple) else ""
    for part in get_args(annotation):
        yield from _groups(part, between + more)
