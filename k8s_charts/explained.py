"""A fault that pydantic found, as one sentence: the setting, what was found, what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from settings.addresses import without_secrets

Location = tuple[int | str, ...]
LONGEST_SHOWN = 80
"""Characters of a found value that a sentence repeats."""


def sentence(text: str) -> PydanticCustomError:
    """For a validator: a fault that spans settings, where the text is the whole sentence."""
    return PydanticCustomError("sentence", "{text}", {"text": text})


def explain(model: type[BaseModel], faults: Sequence[ErrorDetails]) -> str:
    """The sentence for the fault to mend first of a document that `model` describes."""
    # A misspelled setting is missing as well: it is the one that the user knows of.
    fault = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
    return " ".join(_sentence(model, fault).split())


def _sentence(model: type[BaseModel], fault: ErrorDetails) -> str:
    kind, found = fault["type"], fault["input"]
    if kind == "sentence":
        return fault["msg"]
    # Without pydantic's own words: that it is a key, and which kind of a union's.
    location = tuple(part for part in fault["loc"] if not str(part).startswith(("[key]", "function-", "tuple[")))
    setting = ".".join(_shown(part) for part in location) or "the job"
    if kind == "missing":
        field = _field(model, location)
        return f"{setting} is missing: {((field and field.description) or 'give it').rstrip('.')}"
    if kind == "extra_forbidden":
        known = _names(_model_at(model, location[:-1]))
        near = get_close_matches(str(location[-1]), known, 1)
        return f"{setting} is no setting of a job: " + (f"did you mean {near[0]}?" if near else f"{', '.join(known)} are allowed")
    if kind == "string_pattern_mismatch" and (field := _field(model, location)) and field.examples:
        return f"{setting} is {_shown(found)}: text like {' or '.join(field.examples)} is allowed"
    return f"{setting} is {_shown(found)}: {_allowed(kind, fault['msg'], fault.get('ctx', {}))}"


def _shown(found: object) -> str:
    if found is None or found == "":
        return "empty"
    text = without_secrets(repr(found) if isinstance(found, bool | list | dict) else str(found))
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."


def _allowed(kind: str, message: str, context: dict[str, Any]) -> str:
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if kind == "string_type":
        return "text is allowed; a number or a word like yes, no or null needs quotes"
    if kind == "literal_error":
        return f"{context['expected'].replace(chr(39), '')} is allowed"
    if kind in ("int_type", "int_from_float"):
        return "a whole number is allowed"
    if kind in ("string_too_short", "too_short"):
        return "leave it out, or give at least one character"
    if kind == "float_type":
        return "a number is allowed"
    if kind == "bool_type":
        return "true or false is allowed"
    if kind in ("model_type", "dict_type"):
        return "a mapping of settings is allowed"
    if kind in ("tuple_type", "list_type"):
        return "a list is allowed"
    for bound, words in (("ge", "at least"), ("gt", "more than"), ("le", "at most"), ("lt", "less than")):
        if bound in context:
            return f"{words} {context[bound]} is allowed"
    if kind == "string_pattern_mismatch":
        return f"text like {context['pattern']} is allowed"
    return message


def _inner(field: FieldInfo) -> type[BaseModel] | None:
    """The settings below a field, also where the field may be left out (`X | None`)."""
    for candidate in (field.annotation, *get_args(field.annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _model_at(model: type[BaseModel], location: Location) -> type[BaseModel]:
    for part in location:
        for name, field in model.model_fields.items():
            inner = _inner(field)
            if part in (name, field.alias) and inner is not None:
                model = inner
                break
    return model


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _field(model: type[BaseModel], location: Location) -> FieldInfo | None:
    for name, field in _model_at(model, location[:-1]).model_fields.items():
        if location and location[-1] in (name, field.alias):
            return field
    return None
