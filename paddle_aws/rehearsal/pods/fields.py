"""Sorts every field of a manifest: honoured, without effect here, or refused by name.

A class of manifests.py honours the fields that it reads; fields.yaml lists the others. A field on
no list is refused, too, so that no part of a manifest is silently dropped.
"""

import functools
import re
import typing
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import AliasPath, BaseModel
from pydantic.fields import FieldInfo

from paddle_aws.operations.errors import BadInput


class WithoutEffect(NamedTuple):
    """Fields without effect on one machine, and the reason: printed once per rehearsal."""

    reason: str
    fields: tuple[str, ...]


_LISTS: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


def _by_item(reasons: Mapping[str, list[str]]) -> dict[str, str]:
    return {item: reason for reason, items in reasons.items() for item in items}


_KINDS_WITHOUT_EFFECT = _by_item(_LISTS["kinds_without_effect"])
_KINDS_REFUSED = _by_item(_LISTS["kinds_refused"])
_KINDS = sorted(name for name in _LISTS if name[0].isupper())


@functools.cache
def _fields(group: str) -> dict[str, tuple[str, str]]:
    """The list and the reason for each field of a group and of the groups below it."""
    written = _LISTS[group]
    fields = {path: ("honoured", "") for path in written.get("honoured", ())}
    for listing in ("without_effect", "refused"):
        for path, reason in _by_item(written.get(listing, {})).items():
            fields[path] = listing, reason
    for at, groups in written.get("below", {}).items():
        for below in groups:
            fields |= {f"{at}.{path}": listed for path, listed in _fields(below).items()}
    return fields


@functools.cache
def read_by(part: type[BaseModel]) -> frozenset[str]:
    """Returns the paths of the fields that a class reads, in the form of fields.yaml."""
    return frozenset(
        f"{_place(name, field)}{path}"
        for name, field in part.model_fields.items()
        for path in _below(field)
    )


def _place(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    return ".".join(map(str, alias.path)) if isinstance(alias, AliasPath) else name


def _below(field: FieldInfo) -> Iterator[str]:
    """Yields the parts of a field that are read, as endings of its path."""
    extra = field.json_schema_extra
    if isinstance(extra, dict) and extra["below"]:
        yield str(extra["below"])
        return
    named = typing.get_origin(field.annotation) is dict
    several = named or typing.get_origin(field.annotation) in (tuple, frozenset)
    types = (field.annotation, *typing.get_args(field.annotation))
    parts = [kind for kind in types if isinstance(kind, type) and issubclass(kind, BaseModel)]
    for part in parts:
        for path in read_by(part):
            yield f"[].{path}" if several else f".{path}"
    if not parts:
        yield ".*" if named else "[]" if several else ""


def paths(value: object, at: str = "") -> Iterator[str]:
    """Yields the path of each leaf in a document; an empty map or list is a leaf as well."""
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from paths(below, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list) and value:
        for item in value:
            yield from paths(item, f"{at}[]")
    else:
        yield at


def _matches(path: str, fields: Container[str]) -> str | None:
    """The listed field that covers `path`: the path itself, or one of its parents with `.*`."""
    ends = (match.start() for match in re.finditer(r"[.\[]|\Z", path))
    parents = [f"{path[:end]}.*" for end in ends]
    return next((name for name in (path, f"{path}[]", *reversed(parents)) if name in fields), None)


def check(
    documents: list[dict[str, Any]], classes: Mapping[str, type[BaseModel]]
) -> list[WithoutEffect]:
    """Returns the kinds and fields of `documents` that have no effect here, grouped by reason.
    `classes` are the classes that read each kind.

    Raises BadInput with the document, the field and the reason for the first field that cannot be
    rehearsed.
    """
    without: dict[str, set[str]] = {}
    for document in documents:
        kind = str(document.get("kind", ""))
        name = f"{kind} {document.get('metadata', {}).get('name', '')}".strip()
        if kind in _KINDS_REFUSED:
            raise BadInput(f"{name} cannot be rehearsed: {_KINDS_REFUSED[kind]}")
        if kind in _KINDS_WITHOUT_EFFECT:
            without.setdefault(_KINDS_WITHOUT_EFFECT[kind], set()).add(kind)
            continue
        if kind not in _KINDS:
            kinds = ", ".join(sorted({*_KINDS, *_KINDS_WITHOUT_EFFECT}))
            raise BadInput(
                f"{name or 'a document without a kind'}: the rehearsal knows no such kind; it "
                f"runs {kinds}"
            )
        fields = _fields("any_kind") | _fields(kind)
        honoured = read_by(classes[kind]) if kind in classes else frozenset()
        for path in paths(document):
            field = _matches(path, fields)
            if field is None and _matches(path, honoured) is not None:
                continue
            if field is None:
                raise BadInput(
                    f"{name}: {path} is a field the rehearsal does not know; it can neither "
                    "honour nor ignore it"
                )
            listing, reason = fields[field]
            if listing == "refused":
                raise BadInput(f"{name}: {path} cannot be rehearsed: {reason}")
            if listing == "without_effect":
                *_, shown = re.findall(r"[^.*\[\]]+", field)
                without.setdefault(reason, set()).add(shown)
    notes = sorted(without.items())
    return [WithoutEffect(reason, tuple(sorted(shown))) for reason, shown in notes]
