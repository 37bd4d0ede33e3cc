"""cluster.yaml and job.yaml as typed values, and everything wrong with them as sentences.

Promises: `read` and `parse` return a spec or raise `SettingError` with every fault that can be seen
at once, one sentence per line: the setting by its path in the file, what was found and what is
allowed. If a setting is wrong, rules between settings are still checked, except one that reads that
setting, and those of a group in which a setting without a default is wrong. Imports no aws_cdk.

    >>> class Pool(Settings):
    ...     least: int = 0
    ...     most: int = 3
    ...
    ...     def _faults(self):
    ...         if self.least > self.most:
    ...             yield Refused("least", self.least, f"allowed is up to most, {self.most}")
    >>> parse(Pool, {"least": 2}).most
    3
    >>> parse(Pool, {"least": 4})
    Traceback (most recent call last):
    paddle_settings.errors.SettingError: least is 4: allowed is up to most, 3
    >>> parse(Pool, {"lest": 2, "most": "3"})
    Traceback (most recent call last):
    paddle_settings.errors.SettingError: lest is not a setting: did you mean least?
    most must be a whole number (found "3"): leave the quotes out
"""

import copy
import difflib
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails

from paddle_settings import conditions
from paddle_settings import file as settings_file
from paddle_settings.addresses import hide_secrets
from paddle_settings.conditions import Counts
from paddle_settings.docstrings import descriptions
from paddle_settings.errors import SettingError as SettingError

Spec = TypeVar("Spec", bound="Settings")
Location = tuple[int | str, ...]
HANDED_DOWN = "handed_down"
"""Key of a validation's context: settings of files that the user's own file extends."""
LONGEST_SHOWN = 80
"""How many characters of a wrong value a sentence repeats at most."""


class Refused(ValueError):
    """A verdict on one field, before the path of its group is known.

    Args:
        field: the field's path below the group that refuses; empty for the validated value itself.
        found: the value that was found.
        allowed: what is allowed; `{here}` becomes the group's own path, followed by a dot.
    """

    def __init__(self, field: str, found: object, allowed: str) -> None:
        super().__init__(f"{field} is {format_value(found)}: {allowed}")
        self.field, self.found, self.allowed = field, found, allowed

    def sentence(self, here: str) -> str:
        """Returns the whole sentence, for the group at `here`."""
        path = ".".join(part for part in (here, self.field) if part)
        return (
            f"{path} is {format_value(self.found)}: "
            f"{self.allowed.replace('{here}', f'{here}.' if here else '')}"
        )


class WithoutEffect(str):
    """The sentence about a setting that is given and has no effect."""

    path: str
    """The setting."""


Fault = str | Refused
"""A fault that a rule yields: a whole sentence, or a verdict on one field."""
AnyFault = TypeVar("AnyFault", bound=Fault)


class _Broken(ValueError):
    """The faults that the rules of one group found."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = faults


class Settings(BaseModel):
    """What every part of a settings file has in common: unknown keys and wrong types are refused,
    values never change.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def _faults(self) -> Iterator[Fault]:
        """Yields what breaks the rules between this group's settings, each of which is valid on its
        own.
        """
        yield from ()

    def _without_effect(self) -> Iterator[Fault]:
        """Yields what is given in this file and cannot have an effect (`conditions.Counts`)."""
        for setting in conditions.given(self):
            asks = isinstance(setting.value, Settings) or bool(setting.value or setting.default)
            for condition in setting.conditions if asks else ():
                yield from check(lambda: self._refuse(setting, condition))  # noqa: B023

    def _refuse(self, setting: conditions.Given, condition: Counts) -> Iterator[Fault]:
        if condition.holds(setting.group, self):
            return
        several = isinstance(setting.value, Settings | Mapping | list | tuple)
        shown = "given" if several else format_value(setting.value)
        fault = WithoutEffect(
            f"{setting.path} is {shown}: it counts only {condition.only}; leave it out"
            + (f"; {condition.instead}" if condition.instead else "")
        )
        fault.path = setting.path
        yield fault

    if not TYPE_CHECKING:  # Otherwise every name would be an attribute to mypy.

        def __getattr__(self, name: str) -> Any:
            if name in type(self).model_fields:
                raise FaultySetting(name)
            return super().__getattr__(name)

    @model_validator(mode="wrap")
    @classmethod
    def _obeys(
        cls, value: Any, validate: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        group = validate(value)
        if isinstance(value, _SoundSettings):
            for field in list(value.faulty_fields(group)):
                del group.__dict__[field]
        ignored = (info.context or {}).get(HANDED_DOWN, ())
        faults = [
            fault
            for fault in check(group._faults)
            if not (isinstance(fault, WithoutEffect) and fault.path in ignored)
        ]
        if faults:
            raise _Broken(faults)
        return group

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describes each setting by the docstring below it."""
        schema = handler(core_schema)
        settings = handler.resolve_ref_schema(schema)["properties"]
        for name, description in descriptions(cls).items():
            setting = settings[cls.model_fields[name].alias or name]
            setting.setdefault("description", description)
        for name, field in cls.model_fields.items():
            for condition in conditions.conditions(cls, name):
                setting = settings[field.alias or name]
                said = f"{setting.get('description', '')} Counts only {condition.only}."
                setting["description"] = said.strip()
        return schema


class FaultySetting(Exception):
    """Raised when a rule reads a setting whose fault is reported already."""


def check(*rules: Callable[[], Iterator[AnyFault]]) -> Iterator[AnyFault]:
    """Yields the faults that the rules find. A rule that reads a faulty setting ends there; the
    others continue.
    """
    for rule in rules:
        with suppress(FaultySetting):
            yield from rule()


class _SoundSettings(dict[str, Any]):
    """A group of a settings file without its faulty settings, whose names it keeps."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.faulty: set[str] = set()

    def faulty_fields(self, group: Settings) -> Iterator[str]:
        """Yields those fields of `group`, which was made from this, that have a fault, or are a
        mapping with a faulty value.
        """
        for field, about in type(group).model_fields.items():
            alias = about.validation_alias
            names = {field, *(alias.choices if isinstance(alias, AliasChoices) else [alias])}
            if not names.isdisjoint(self.faulty) or (
                not isinstance(getattr(group, field), Settings)
                and any(
                    isinstance(value, _SoundSettings) and value.faulty
                    for name, value in self.items()
                    if name in names
                )
            ):
                yield field


def read(spec: type[Spec], path: Path) -> Spec:
    """Returns the settings file at `path` as a `spec`. Raises SettingError if it is missing, not
    YAML, or not allowed.
    """
    settings = settings_file.mapping(path)
    try:
        return parse(spec, settings)
    except SettingError as error:
        raise SettingError(
            "\n".join(f"{path.name}: {line}" for line in str(error).splitlines())
        ) from None


def parse(spec: type[Spec], settings: Mapping[str, Any], handed_down: Collection[str] = ()) -> Spec:
    """Returns the settings as a `spec`. Raises SettingError if they are not allowed.

    `handed_down` are settings of files that the user's own extends: where one has no effect, it is
    ignored.
    """
    context = {HANDED_DOWN: handed_down}
    try:
        return spec.model_validate(dict(settings), context=context)
    except ValidationError as error:
        # A default that follows from faulty settings is no fault of its own.
        faults = [
            fault
            for fault in error.errors(include_url=False)
            if fault["type"] != "default_factory_not_called"
        ]
    # pydantic also reports a misspelled setting as missing: only the misspelling means something to
    # the user.
    faults.sort(key=lambda fault: fault["type"] != "extra_forbidden")
    meant = {
        (*fault["loc"][:-1], _find_nearest(spec, fault["loc"]))
        for fault in faults
        if fault["type"] == "extra_forbidden"
    }
    faults = [fault for fault in faults if fault["type"] != "missing" or fault["loc"] not in meant]
    # One fault for each setting: if several types are allowed, pydantic reports one for each of
    # them.
    first: dict[Location, ErrorDetails] = {}
    for fault in faults:
        first.setdefault(_location(fault), fault)
    # No text, and a list whose entries are wrong: a list was meant.
    for place in [place[:-1] for place in first]:
        if place in first and first[place]["type"] == "string_type":
            del first[place]
    for fault in first.values():
        _try_as_list(spec, settings, fault)
    lines = [line for fault in first.values() for line in _lines(spec, fault)]
    wrong = {*meant, *map(_location, faults)}
    # Rules between settings need a whole group: they are checked without the faulty settings, and
    # one that reads such a setting ends there.
    try:
        spec.model_validate(_drop_faulty(settings, wrong), context=context)
    except ValidationError as error:
        rules = (fault for fault in error.errors(include_url=False) if _rules_of(fault))
        lines += [line for fault in rules for line in _lines(spec, fault)]
    raise SettingError("\n".join(dict.fromkeys(lines)))


def format_value(value: object) -> str:
    """Returns a value as the user wrote it, on one line and shortened."""
    if value is None:
        return "empty"
    text = f"{value:.15g}" if isinstance(value, float) else str(value)
    text = text.lower() if isinstance(value, bool) else text
    text = " ".join(hide_secrets(text).split())
    return f"{text[:LONGEST_SHOWN]}..." if len(text) > LONGEST_SHOWN else text or "empty"


_MUST_BE = {
    "a group of settings": ("dict_type", "mapping_type", "model_type"),
    "a list": ("frozen_set_type", "list_type", "tuple_type"),
    "a number": ("float_parsing", "float_type"),
    "a whole number": ("int_from_float", "int_parsing", "int_type"),
    "text": ("string_type",),
    "true or false": ("bool_parsing", "bool_type"),
    "at least {ge}": ("greater_than_equal",),
    "more than {gt}": ("greater_than",),
    "at most {le}": ("less_than_equal",),
    "less than {lt}": ("less_than",),
    "text of at most {max_length} characters": ("string_too_long",),
}
_SENTENCES = {
    kind: f"must be {allowed} (found {{found}})"
    for allowed, kinds in _MUST_BE.items()
    for kind in kinds
} | {
    "invalid_key": "is not a setting: its name must be text",
    "too_short": "must have at least {min_length} entries (found {actual_length})",
    "too_long": "must have at most {max_length} entries (found {actual_length})",
}
"""Sentences for pydantic's error types, with placeholders for what it says about each error."""


def _lines(spec: type[Settings], fault: ErrorDetails) -> list[str]:
    path = _path(_location(fault))
    if rules := _rules_of(fault):
        return [_flat(rule.sentence(path) if isinstance(rule, Refused) else rule) for rule in rules]
    return [_flat(f"{path or 'the file'} {_verdict(spec, fault)}")]


def _try_as_list(spec: type[Settings], settings: Mapping[str, Any], fault: ErrorDetails) -> None:
    """Puts into the fault of a value that has to be in a list why it could not be there either."""
    if fault["type"] not in ("list_type", "tuple_type"):
        return
    tried = copy.deepcopy(dict(settings))
    group: Any = tried
    *above, last = _location(fault)
    try:
        for part in above:
            group = group[part]
        group[last] = [fault["input"]]
        spec.model_validate(tried)
    except (KeyError, TypeError):
        pass
    except ValidationError as error:
        path = _path(_location(fault))
        for other in error.errors(include_url=False):
            for line in _lines(spec, other):
                if line.startswith((f"{path} is ", f"{path}[0] is ")):
                    fault["ctx"] = {"refused": line.partition(": ")[2]}


def _verdict(spec: type[Settings], fault: ErrorDetails) -> str:
    kind, found = fault["type"], fault["input"]
    context = {
        name: f"{value:.15g}" if isinstance(value, float) else value
        for name, value in fault.get("ctx", {}).items()
    }
    match kind:
        case "model_type" | "dict_type" | "mapping_type" if example := _example(spec, fault):
            return f"must be a group of settings, such as {example} (found {format_value(found)})"
        case "list_type" | "tuple_type" if context.get("refused"):
            return f"must be a list (found {format_value(found)}): {context['refused']}"
        case "list_type" | "tuple_type" if _is_allowed(
            _find_schema(spec, (*fault["loc"], 0)), found
        ):
            return f"must be a list, such as [{format_value(found)}] (found {format_value(found)})"
        case "missing":
            return f"is missing: {_needed(_find_schema(spec, fault['loc']))}"
        case "extra_forbidden":
            if near := _find_nearest(spec, fault["loc"]):
                return f"is not a setting: did you mean {near}?"
            names = ", ".join(_find_schema(spec, fault["loc"][:-1]).get("properties", ()))
            return "is not a setting" + (f": allowed are {names}" if names else "")
        case "string_type" if isinstance(found, bool | int | float) and (
            not (schema := _find_schema(spec, fault["loc"]))  # Of one of several kinds: unknown.
            or _is_allowed(schema, format_value(found))
        ):
            return f"must be text (found {format_value(found)}): put it in quotes"
        case "int_type" if isinstance(found, str) and re.fullmatch(r"\d{1,18}", found):
            plain = found == str(int(found))
            remedy = "leave the quotes out" if plain else f"write {int(found)}"
            return f'must be a whole number (found "{found}"): {remedy}'
        case "string_too_short" | "too_short" if context["min_length"] == 1:
            return "must not be empty"
        case "literal_error" | "enum":
            expected = str(context["expected"]).replace("'", "")
            return f"must be {expected} (found {format_value(found)})"
        case "string_pattern_mismatch":
            examples = _find_schema(spec, fault["loc"]).get("examples")
            like = (
                f"like {' or '.join(examples)}"
                if examples
                else f"text that matches {context['pattern']}"
            )
            return f"must be {like} (found {format_value(found)})"
    if kind in _SENTENCES:
        return _SENTENCES[kind].format(found=format_value(found), **context)
    return f"is {format_value(found)}: {fault['msg'].removeprefix('Value error, ')}"


def _needed(schema: Mapping[str, Any]) -> str:
    """Returns what a setting that has no default takes, and what it is, in a clause."""
    kinds = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}
    kind = kinds.get(str(schema.get("type")), "text")
    if "properties" in schema or schema.get("type") == "object":
        kind = f"a group of settings ({', '.join(schema.get('properties', ())) or 'name: value'})"
    if schema.get("type") == "array":
        kind = "a list"
    least = f" from {schema['minimum']} on" if "minimum" in schema else ""
    example = f", such as {schema['examples'][0]}," if schema.get("examples") else ""
    about = " ".join(schema.get("description", "").split()).partition(". ")[0].rstrip(".")
    meaning = f" ({about[0].lower()}{about[1:]})" if about else ""
    return f"{kind}{least}{example} is needed{meaning}"


def _example(spec: type[Settings], fault: ErrorDetails) -> str:
    """Returns a group with the value that was found in its place, such as {count: 4}; empty if none
    of the group's settings takes it.
    """
    value, settings = fault["input"], _find_schema(spec, fault["loc"]).get("properties", {})
    name = next((name for name, schema in settings.items() if _is_allowed(schema, value)), "")
    return name and f"{{{name}: {format_value(value)}}}"


def _is_allowed(schema: Mapping[str, Any], value: object) -> bool:
    """Returns whether a setting may have this scalar, by the type, the names and the pattern of its
    schema.
    """
    kinds = {bool: {"boolean"}, int: {"integer", "number"}, float: {"number"}, str: {"string"}}
    return any(
        not kinds.get(type(value), set()).isdisjoint(_several(choice.get("type", ())))
        and value in choice.get("enum", [choice.get("const", value)])
        and re.search(choice.get("pattern", ""), str(value))
        for choice in schema.get("anyOf", [schema])
    )


def _several(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


def _rules_of(fault: ErrorDetails) -> Sequence[Fault]:
    """Returns the verdicts of our own rules, if these found the fault."""
    error = fault.get("ctx", {}).get("error")
    if isinstance(error, _Broken):
        return error.faults
    return (error,) if isinstance(error, Refused) else ()


def _location(fault: ErrorDetails) -> Location:
    """Returns the location without pydantic's own words: that it is a key, or which type of a
    union.
    """
    return tuple(
        part
        for part in fault["loc"]
        if part != "bool" and not str(part).startswith(("[key]", "function-", "tuple["))
    )


def _path(location: Location) -> str:
    parts = (
        f"[{part}]" if isinstance(part, int) else f".{format_value(part)}" for part in location
    )
    return "".join(parts).removeprefix(".")


def _flat(text: str) -> str:
    return " ".join(text.split())


def _drop_faulty(settings: Mapping[str, Any], faulty: Iterable[Location]) -> _SoundSettings:
    """Returns the settings without the faulty ones. A list with a fault is left out as a whole."""
    rest = _SoundSettings(settings)
    for location in faulty:
        names = list(itertools.takewhile(lambda part: isinstance(part, str), location))
        if not names:
            continue
        *above, last = names
        group = rest
        for part in map(str, above):
            inner = group.get(part)
            if not isinstance(inner, dict):
                break
            if not isinstance(inner, _SoundSettings):
                inner = group[part] = _SoundSettings(inner)
            group = inner
        else:
            group.pop(str(last), None)
            group.faulty.add(str(last))
    return rest


def _find_nearest(spec: type[Settings], location: Location) -> str:
    """Returns the setting of the same group that the user may have meant; empty if none is near."""
    names = list(_find_schema(spec, location[:-1]).get("properties", ()))
    return next(iter(difflib.get_close_matches(str(location[-1]), names, n=1)), "")


def has_setting(spec: type[Settings], path: str) -> bool:
    """Returns whether a settings file may have the setting at `path`, such as `nodes.*.ssh`."""
    return bool(_find_schema(spec, tuple(path.split("."))))


def _find_schema(spec: type[Settings], location: Location) -> Mapping[str, Any]:
    """Returns the schema of the setting at `location`, or of the group of settings there."""
    group: Mapping[str, Any] = spec.model_json_schema()
    definitions = group.get("$defs", {})
    for number, part in enumerate(location):
        if location[number + 1 :] == ("[key]",):
            return {"examples": group.get("propertyNames", {}).get("examples")}
        inside = (
            group.get("items") if isinstance(part, int) else group.get("properties", {}).get(part)
        )
        inside = (
            inside
            or group.get("additionalProperties")
            or next(iter(group.get("patternProperties", {}).values()), None)
        )
        group = inside if isinstance(inside, Mapping) else {}
        for choice in (group, *group.get("anyOf", ())):
            if "$ref" in choice:
                group = {**definitions[choice["$ref"].rsplit("/", 1)[-1]], **group}
    return group
