"""Bad settings as one sentence each: the setting, what was found, what is allowed.

Promises: whatever is wrong with a settings file, `SettingError` carries one sentence that names the field by its
path in the file, and nothing else reaches the user. Imports no aws_cdk.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from settings import file as settings_file
from settings.addresses import without_secrets
from settings.file import SettingError as SettingError

Spec = TypeVar("Spec", bound=BaseModel)


class Refused(ValueError):
    """A validator's verdict on one field, before its path is known.

    Args:
        field: the field's path below the model that refuses; empty for the validated value itself.
        found: what stands there.
        allowed: what may stand there; `{here}` becomes the model's own path, with a dot behind it.
    """

    def __init__(self, field: str, found: object, allowed: str) -> None:
        super().__init__(f"{field} is {shown(found)}: {allowed}")
        self.field, self.found, self.allowed = field, found, allowed

    def sentence(self, here: str) -> str:
        """The whole sentence, for the model at `here`."""
        path = ".".join(part for part in (here, self.field) if part) or "the file"
        return f"{path} is {shown(self.found)}: {self.allowed.replace('{here}', f'{here}.' if here else '')}"


class Settings(BaseModel):
    """What every part of a settings file has in common: unknown keys and wrong types are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


def read(spec: type[Spec], path: Path) -> Spec:
    """The settings file at `path` as a `spec`; SettingError if it is missing, no YAML, or says what is not allowed."""
    found = settings_file.mapping(path)
    try:
        return spec.model_validate(found)
    except ValidationError as error:
        raise SettingError(f"{path.name}: {_sentence(spec, _first(error))}") from None


def shown(value: object) -> str:
    """A found value as the user wrote it, cut to one short piece."""
    if value is None:
        return "empty"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    text = " ".join(without_secrets(text).split())
    return (text[:60] + "...") if len(text) > 60 else (text or "empty")


_ALLOWED = {
    "a group of settings": ("dict_type", "mapping_type", "model_type"),
    "a list": ("frozen_set_type", "list_type", "tuple_type"),
    "a number": ("float_parsing", "float_type"),
    "a whole number": ("int_from_float", "int_parsing", "int_type"),
    "text": ("string_type",),
    "true or false": ("bool_parsing", "bool_type"),
}
_SENTENCES = {
    **{kind: f"is {{found}}: allowed is {allowed}" for allowed, kinds in _ALLOWED.items() for kind in kinds},
    "missing": "is missing: it has no default",
    "greater_than_equal": "is {found}: allowed is {ge} or more",
    "less_than_equal": "is {found}: allowed is {le} or less",
    "too_short": "has {actual_length} entries: allowed is {min_length} or more",
    "too_long": "has {actual_length} entries: allowed is {max_length} or fewer",
    "string_too_short": "is {found}: allowed is text of {min_length} characters or more",
    "string_too_long": "is {found}: allowed is text of {max_length} characters or fewer",
}
"""pydantic's kinds of errors, with what it says of each, as sentences."""


def _first(error: ValidationError) -> ErrorDetails:
    """The fault to mend first: a misspelled setting is missing as well, and the misspelling is what the user knows of."""
    faults = error.errors(include_url=False)
    return next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])


def _sentence(spec: type[BaseModel], error: ErrorDetails) -> str:
    path = _path(error["loc"])
    kind, context, found = error["type"], error.get("ctx", {}), error["input"]
    match kind:
        case "extra_forbidden":
            return f"{path} is not a setting{_nearest(spec, error['loc'])}"
        case "string_type" if isinstance(found, bool):
            return f"{path} is {shown(found)}: allowed is text; a word like yes, no or true needs quotes"
        case "int_type" if isinstance(found, str) and found.isdigit():
            return f'{path} is "{found}": allowed is a whole number, without quotes'
        case "string_type" if isinstance(found, int | float):
            return f'{path} is the number {found}: write it in quotes, "{found}"'
        case "literal_error" | "enum":
            return f"{path} is {shown(found)}: allowed is {str(context['expected']).replace(chr(39), '')}"
        case "string_pattern_mismatch":
            if examples := _group(spec, error["loc"]).get("examples"):
                return f"{path} is {shown(found)}: allowed is one such as {examples[0]}"
            return f"{path} is {shown(found)}: allowed is text that matches {context['pattern']}"
        case "value_error" if isinstance(refused := context.get("error"), Refused):
            return refused.sentence(path)
    if kind in _SENTENCES:
        return f"{path} {_SENTENCES[kind].format(found=shown(found), **context)}"
    return f"{path} is {shown(found)}: {error['msg']}"


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if part == "[key]":
            # pydantic's word for a key that is at fault, which stands before it already.
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{shown(part)}" if path else shown(part)
    return path


def _nearest(spec: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """A hint at the setting that was perhaps meant, among those of the same group."""
    names = list(_group(spec, location[:-1]).get("properties", {}))
    if near := difflib.get_close_matches(str(location[-1]), names, n=1):
        return f": did you mean {near[0]}?"
    return f": allowed are {', '.join(names)}" if names else ""


def _group(spec: type[BaseModel], location: tuple[int | str, ...]) -> Mapping[str, Any]:
    """What the schema says of the setting at `location`, or of the group of settings there."""
    schema = spec.model_json_schema()
    group, definitions = schema, schema.get("$defs", {})
    for number, part in enumerate(location):
        if location[number + 1 :] == ("[key]",):
            return {"examples": group.get("propertyNames", {}).get("examples")}
        inside = group.get("items") if isinstance(part, int) else group.get("properties", {}).get(part)
        inside = inside or group.get("additionalProperties") or next(iter(group.get("patternProperties", {}).values()), None)
        group = _resolved(inside, definitions)
    return group


def _resolved(group: Any, definitions: Mapping[str, Any]) -> Any:
    if not isinstance(group, Mapping):
        return {}
    for choice in (group, *group.get("anyOf", ())):
        if "$ref" in choice:
            return definitions[choice["$ref"].rsplit("/", 1)[-1]]
    return group
