"""The kinds of value that a job's settings have, each with the sentence that says what is allowed."""

import re
import shlex
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Annotated, TypeVar

from paddle_node import contract
from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

LABEL_LENGTH = 63
"""Characters of a DNS label, a label's value, and a pod's host name."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_SCALE = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SCALE |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTP", 1)}
_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_ZONE = re.compile(r"[a-z]{2}(-[a-z0-9]+)+-\d+[a-z]")
# As the container runtime reads it: [registry[:port]/]repository[:tag][@digest].
_WORD = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[a-zA-Z0-9](?:[-a-zA-Z0-9.]*[a-zA-Z0-9])?(?::\d{{1,5}})?/)?{_WORD}(?:/{_WORD})*(?::\w[\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?",
    re.ASCII,
)
_SIGNS = "letters, digits, '-', '_' and '.' are allowed, at most 63"
T = TypeVar("T")


def amount(quantity: str) -> float:
    """A Kubernetes quantity as a number: bytes of memory, cores of CPU. Raises ValueError for anything else."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        raise ValueError(f"{quantity} is no quantity")
    return float(found[1]) * _SCALE[found[2] or ""]


def total(quantity: str, times: int) -> str:
    """`times` such quantities, exactly, in the same unit: 500m three times is 1500m."""
    unit = quantity.lstrip("0123456789.")
    whole, _, fraction = quantity.removesuffix(unit).partition(".")
    digits = str(int(whole + fraction) * times).rjust(len(fraction) + 1, "0")
    return f"{digits}{unit}" if not fraction else f"{digits[: -len(fraction)]}.{digits[-len(fraction) :]}{unit}"


def is_image(text: str) -> bool:
    """Whether a container runtime accepts it as the name of an image."""
    return _IMAGE.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """Whether it can name a label or a taint."""
    prefix, _, name = text.rpartition("/")
    return _LABEL_KEY.fullmatch(text) is not None and len(name) <= LABEL_LENGTH and len(prefix) <= 253


def is_label_value(text: str) -> bool:
    """Whether it can be the value of a label or a taint."""
    return _LABEL_VALUE.fullmatch(text) is not None and len(text) <= LABEL_LENGTH


def _where(holds: Callable[[str], object], allowed: str) -> AfterValidator:
    """Refuses a value that does not hold, with what is allowed."""

    def check(value: str) -> str:
        if not holds(value):
            raise ValueError(allowed)
        return value

    return AfterValidator(check)


def _is_object_name(text: str) -> bool:
    return len(text) <= 253 and all(_LABEL.fullmatch(part) for part in text.split("."))


def _in_thousandths(text: str) -> bool:
    # Kubernetes rounds up to thousandths: less would silently be another amount.
    return bool(_QUANTITY.fullmatch(text)) and amount(text) >= 0.001 and not round(amount(text) * 1000, 6) % 1


def _is_plain(path: str) -> bool:
    return ".." not in PurePosixPath(path).parts and str(PurePosixPath(path)) == path


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError("no variable, argument or file name can hold a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half of a character (a lone surrogate): text of whole characters is allowed") from None
    return value


def _frozen(value: object) -> object:
    # A YAML list; strict mode would want a tuple, which no file can hold.
    return tuple(value) if isinstance(value, list) else value


def _words(value: object) -> object:
    # As a shell would split it; nothing else of a shell is done.
    try:
        words = shlex.split(value) if isinstance(value, str) else _frozen(value)
    except ValueError:
        words = None
    if not isinstance(words, list | tuple):
        raise ValueError("a line whose quotes are closed, or a list of words, is allowed")
    return tuple(words)


def _labels(value: dict[str, str]) -> dict[str, str]:
    for key, text in value.items():
        if not is_label_key(key):
            raise ValueError(f"{key} is no label's name: {_SIGNS}")
        if not is_label_value(text):
            raise ValueError(f"{key} has the value {text}: {_SIGNS}")
    return value


def _dns_label(pattern: re.Pattern[str], first: str = "") -> tuple[AfterValidator, WithJsonSchema]:
    allowed = f"lower-case letters, digits and inner hyphens are allowed,{first} at most {LABEL_LENGTH} (a DNS label)"
    schema = {"type": "string", "pattern": f"^{pattern.pattern}$", "maxLength": LABEL_LENGTH}
    return _where(lambda text: pattern.fullmatch(text) and len(text) <= LABEL_LENGTH, allowed), WithJsonSchema(schema)


Several = Annotated[tuple[T, ...], BeforeValidator(_frozen)]
AsTuple = BeforeValidator(_frozen)
# YAML reads `cpu: 2` as a number; Kubernetes takes it as the text "2".
_NUMBER = BeforeValidator(
    lambda value: str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value,
    json_schema_input_type=str | float,
)
_QUANTITY_SCHEMA = WithJsonSchema({"type": ["string", "number"], "pattern": f"^{_QUANTITY.pattern}$"})

DnsLabel = Annotated[str, *_dns_label(_LABEL)]
ServiceName = Annotated[str, *_dns_label(_SERVICE, " a letter first,")]
"""RFC 1035: the headless Service has this name."""
ObjectName = Annotated[
    str, _where(_is_object_name, "the name of a Kubernetes object is allowed: lower-case letters, digits, '-' and '.'")
]
LabelValue = Annotated[
    ObjectName, _where(lambda text: len(text) <= LABEL_LENGTH, f"at most {LABEL_LENGTH} characters are allowed")
]
"""Kueue reads it from a label."""
Cpu = Annotated[
    str,
    _NUMBER,
    _where(_in_thousandths, "a number of cores is allowed in steps of a thousandth, such as 500m, 0.5 or 2"),
    _QUANTITY_SCHEMA,
]
Amount = Annotated[
    str,
    _NUMBER,
    _where(
        lambda text: _QUANTITY.fullmatch(text) and amount(text) > 0,
        "a number above 0 with an optional unit is allowed, such as 500m, 2 or 1Gi",
    ),
    _QUANTITY_SCHEMA,
]
Memory = Annotated[
    str,
    _NUMBER,
    _where(
        lambda text: _QUANTITY.fullmatch(text) and amount(text) >= 2**20 and not amount(text) % 1,
        "an amount of memory from 1Mi upwards is allowed, such as 512Mi or 2Gi",
    ),
    _QUANTITY_SCHEMA,
]
Text = Annotated[str, AfterValidator(_text)]
CommandLine = Annotated[tuple[Text, ...], BeforeValidator(_words, json_schema_input_type=str | tuple[str, ...])]
"""A line as it is typed, or its words."""
ImageName = Annotated[
    str,
    _where(is_image, "the name of an image is allowed: [registry/]repository[:tag][@sha256:<64 hex digits>], in lower case"),
    WithJsonSchema({"type": "string", "pattern": f"^{_IMAGE.pattern}$"}),
]
FolderBelow = Annotated[
    Text,
    _where(
        lambda path: path and not path.startswith("/") and _is_plain(path),
        "a folder below the volume's root is allowed, such as jobs or team/jobs",
    ),
]
AbsolutePath = Annotated[
    Text,
    _where(lambda path: path.startswith("/") and _is_plain(path), "an absolute path is allowed, such as /home/jobpath"),
]
MountPath = Annotated[
    AbsolutePath,
    _where(
        lambda path: path != "/" and ":" not in path and not contract.NOT_IN_PATHS.intersection(path),
        "an absolute path other than / is allowed, without colons, spaces, quotes and a shell's other special characters, "
        "such as /home/jobpath",
    ),
]
Zone = Annotated[str, _where(_ZONE.fullmatch, "a zone such as us-west-2a is allowed")]
Labels = Annotated[dict[str, str], AfterValidator(_labels)]
