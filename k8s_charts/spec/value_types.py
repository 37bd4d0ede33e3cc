"""The types of a job's settings, each with the sentence that says what is allowed."""

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from paddle_node import contract
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from paddle_settings import shared_names

LABEL_LENGTH = 63
"""Characters of a DNS label, a label's value, and a pod's host name."""
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_SCALE = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SCALE |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTP", 1)}
_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAME = r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SIGNS = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_FOLDER = r"(?!\.\.?(/|$))[^/]+"
T = TypeVar("T")


def bounded_field(
    variable: contract.Variable, *, optional: bool = False, **differing: float | None
) -> Any:
    """Declares a setting with the default and the bounds of a pod's variable. Where some differ, a
    comment beside the setting says why.

    Args:
        variable: one of `contract.BOUNDS`.
        optional: whether the setting's default is None, whatever the pod's is.
        differing: bounds and a default that differ, under the names of `contract.Bounds`.
    """
    bounds = replace(contract.BOUNDS[variable], **differing)
    limits = {"ge": bounds.least, "gt": bounds.above, "le": bounds.most, "lt": bounds.below}
    arguments: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
    if optional or bounds.default is not None:
        arguments["default"] = None if optional else bounds.default
    return Field(**arguments)


def amount(quantity: str) -> float:
    """Returns a Kubernetes quantity as a number: bytes of memory, cores of CPU. Raises ValueError
    for anything else.

    >>> amount("500m"), amount("2Gi")
    (0.5, 2147483648.0)
    """
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError(f"{quantity} is no quantity")
    return float(match[1]) * _SCALE[match[2] or ""]


def total(quantity: str, times: int) -> str:
    """Returns the quantity multiplied by `times`, exactly and in the same unit: 500m three times is
    1500m.

    >>> total("500m", 3)
    '1500m'
    """
    unit = quantity.lstrip("0123456789.")
    return f"{Decimal(quantity.removesuffix(unit)) * times}{unit}"


def _check(holds: Callable[[str], object], allowed: str) -> AfterValidator:
    """Returns a validator that refuses values for which `holds` is false, and says what is
    allowed.
    """

    def check(value: str) -> str:
        if not holds(value):
            raise ValueError(allowed)
        return value

    return AfterValidator(check)


def _check_pattern(pattern: str, allowed: str) -> tuple[AfterValidator, WithJsonSchema]:
    """Returns a validator of text that the whole pattern matches, and a schema by which editors
    check it too.
    """
    holds = re.compile(pattern, re.ASCII).fullmatch
    return _check(holds, allowed), WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


NUMBER_AS_TEXT = BeforeValidator(
    lambda value: (
        value if isinstance(value, bool) or not isinstance(value, int | float) else str(value)
    )
)
"""YAML reads `cpu: 2` and `paddle: 3.3` as numbers, and they mean the texts "2" and "3.3"."""


def _quantity(fits: Callable[[float], object], allowed: str) -> tuple[Any, ...]:
    schema = WithJsonSchema({"type": ["string", "number"], "pattern": f"^{_QUANTITY.pattern}$"})
    return (
        NUMBER_AS_TEXT,
        _check(lambda value: _QUANTITY.fullmatch(value) and fits(amount(value)), allowed),
        schema,
    )


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError("no variable, argument or file name can hold a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            "it holds half of a character (a lone surrogate): text of whole characters is allowed"
        ) from None
    return value


def _words(value: object) -> object:
    # Splits as a shell does, and does nothing else that a shell does.
    try:
        # A line that ends with a backslash goes on in the next.
        words = shlex.split(value.replace("\\\n", " ")) if isinstance(value, str) else value
    except ValueError:
        words = None
    if not isinstance(words, list | tuple):
        raise ValueError("a line whose quotes are closed, or a list of words, is allowed")
    return tuple(words)


Several = Annotated[tuple[T, ...], Field(strict=False)]
"""A YAML list. In strict mode it would have to be a tuple, which no file can hold."""
Text = Annotated[str, AfterValidator(_text)]
CommandLine = Annotated[
    tuple[Text, ...], BeforeValidator(_words, json_schema_input_type=str | tuple[str, ...])
]
"""A line as the user types it, or its words."""

DnsLabel = Annotated[
    str,
    *_check_pattern(
        _LABEL, "lower-case letters, digits and inner hyphens are allowed, at most 63 (a DNS label)"
    ),
]
ServiceName = Annotated[
    str,
    *_check_pattern(
        f"(?=[a-z]){_LABEL}",
        "lower-case letters, digits and inner hyphens are allowed, a letter first, at most 63 (a "
        "DNS label)",
    ),
]
"""RFC 1035: the headless Service has this name."""
ObjectName = Annotated[
    str,
    *_check_pattern(
        _NAME, "the name of a Kubernetes object is allowed: lower-case letters, digits, '-' and '.'"
    ),
]
QueueName = Annotated[
    str,
    *_check_pattern(
        rf"(?=.{{1,63}}$){_NAME}", "lower-case letters, digits, '-' and '.' are allowed, at most 63"
    ),
]
"""Kueue reads it from a label."""
LabelKey = Annotated[
    str,
    *_check_pattern(
        f"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_SIGNS}",
        "letters, digits, '-', '_' and '.' are allowed, at most 63",
    ),
]
LabelValue = Annotated[
    str,
    *_check_pattern(f"({_SIGNS})?", "letters, digits, '-', '_' and '.' are allowed, at most 63"),
]
Labels = dict[LabelKey, LabelValue]
VariableName = Annotated[
    str,
    *_check_pattern(
        r"(?!\.\.|\.$)[-._a-zA-Z][-._a-zA-Z0-9]{0,252}",
        "letters, digits, '_', '-' and '.' are allowed in a variable's name, no digit and no "
        "'..' first, at most 253",
    ),
]
ImageName = Annotated[
    str,
    *_check_pattern(
        shared_names.IMAGE,
        "the name of an image is allowed: [registry/]repository[:tag][@sha256:<64 hex digits>], "
        "in lower case",
    ),
]
Server = Annotated[
    str,
    *_check_pattern(
        r"[A-Za-z0-9][-A-Za-z0-9.]*:([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])",
        "a host and a port from 1 to 65535 are allowed, such as etcd:2379",
    ),
]
MountOption = Annotated[
    Text,
    *_check_pattern(r"[^\s,]+", "one option, without spaces and commas, is allowed in each entry"),
]
Zone = Annotated[
    str, *_check_pattern(r"[a-z]{2}(-[a-z0-9]+)+-\d+[a-z]", "a zone such as us-west-2a is allowed")
]

Cpu = Annotated[
    str,
    *_quantity(
        # Kubernetes rounds up to thousandths: a smaller step would silently become another amount.
        lambda cores: cores >= 0.001 and not round(cores * 1000, 6) % 1,
        "a number of cores is allowed in steps of a thousandth, such as 500m, 0.5 or 2",
    ),
]
Amount = Annotated[
    str,
    *_quantity(
        lambda amount: amount > 0,
        "a number above 0 with an optional unit is allowed, such as 500m, 2 or 1Gi",
    ),
]
Memory = Annotated[
    str,
    *_quantity(
        lambda size: size >= 2**20 and not size % 1,
        "an amount of memory from 1Mi upwards is allowed, such as 512Mi or 2Gi",
    ),
]

FolderBelow = Annotated[
    Text,
    *_check_pattern(
        f"{_FOLDER}(/{_FOLDER})*",
        "a folder below the volume's root is allowed, such as jobs or team/jobs",
    ),
]
AbsolutePath = Annotated[
    Text,
    *_check_pattern(
        f"/({_FOLDER}(/{_FOLDER})*)?", "an absolute path is allowed, such as /home/jobpath"
    ),
]
MountPath = Annotated[
    AbsolutePath,
    _check(
        lambda path: path != "/" and not contract.NOT_IN_PATHS.union(":").intersection(path),
        "an absolute path other than / is allowed, without colons, spaces, quotes and a shell's "
        "other special characters, such as /home/jobpath",
    ),
]
