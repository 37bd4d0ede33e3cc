"""The kinds of value that a job's settings have, each with the sentence that says what is allowed."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath
from typing import Annotated, TypeVar

from paddle_node import contract
from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

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
LABEL_LENGTH = 63
"""Characters of a DNS label, a label's value, and a pod's host name."""


def amount(quantity: str) -> float:
    """A Kubernetes quantity as a number: bytes of memory, cores of CPU. Raises ValueError for anything else."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        raise ValueError(f"{quantity} is no quantity")
    return float(found[1]) * _SCALE[found[2] or ""]


def total(quantity: str, times: int) -> str:
    """`times` such quantities, exactly, in the same unit: 500m three times is 1500m."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        raise ValueError(f"{quantity} is no quantity")
    whole, _, fraction = found[1].partition(".")
    digits = str(int(whole + fraction) * times).rjust(len(fraction) + 1, "0")
    number = digits if not fraction else f"{digits[: -len(fraction)]}.{digits[-len(fraction) :]}"
    return f"{number}{found[2] or ''}"


def _dns_label(value: str) -> str:
    if not _LABEL.fullmatch(value) or len(value) > LABEL_LENGTH:
        raise ValueError("lower-case letters, digits and inner hyphens are allowed, at most 63 (a DNS label)")
    return value


def _service_name(value: str) -> str:
    # The headless Service bears it, and a Service's name starts with a letter (RFC 1035).
    if not _SERVICE.fullmatch(value) or len(value) > LABEL_LENGTH:
        raise ValueError("lower-case letters, digits and inner hyphens are allowed, a letter first, at most 63 (a DNS label)")
    return value


def _object_name(value: str) -> str:
    if len(value) > 253 or not all(_LABEL.fullmatch(part) for part in value.split(".")):
        raise ValueError("the name of a Kubernetes object is allowed: lower-case letters, digits, '-' and '.'")
    return value


def _label_value(value: str) -> str:
    # Kueue reads it from a label.
    if len(value) > LABEL_LENGTH:
        raise ValueError("at most 63 characters are allowed")
    return _object_name(value)


def _quantity(value: str) -> str:
    if not _QUANTITY.fullmatch(value) or amount(value) <= 0:
        raise ValueError("a number above 0 with an optional unit is allowed, such as 500m, 2 or 1Gi")
    return value


def _cores(value: str) -> str:
    # Kubernetes rounds up to thousandths: less would silently be another amount.
    if not _QUANTITY.fullmatch(value) or amount(value) < 0.001 or round(amount(value) * 1000, 6) % 1:
        raise ValueError("a number of cores is allowed in steps of a thousandth, such as 500m, 0.5 or 2")
    return value


def _memory(value: str) -> str:
    if not _QUANTITY.fullmatch(value) or amount(value) < 2**20 or amount(value) % 1:
        raise ValueError("an amount of memory from 1Mi upwards is allowed, such as 512Mi or 2Gi")
    return value


def _number_as_text(value: object) -> object:
    # YAML reads `cpu: 2` as a number; Kubernetes takes it as the text "2".
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


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


def _image(value: str) -> str:
    if not is_image(value):
        raise ValueError("the name of an image is allowed: [registry/]repository[:tag][@sha256:<64 hex digits>], in lower case")
    return value


def _below(value: str) -> str:
    if not value or value.startswith("/") or ".." in PurePosixPath(value).parts or str(PurePosixPath(value)) != value:
        raise ValueError("a folder below the volume's root is allowed, such as jobs or team/jobs")
    return value


def _absolute(value: str) -> str:
    if not value.startswith("/") or ".." in PurePosixPath(value).parts or str(PurePosixPath(value)) != value:
        raise ValueError("an absolute path is allowed, such as /home/jobpath")
    return value


def _mount(value: str) -> str:
    if value == "/" or ":" in value or contract.NOT_IN_PATHS.intersection(value):
        raise ValueError(
            "an absolute path other than / is allowed, without colons, spaces, quotes and a shell's other special characters, "
            "such as /home/jobpath"
        )
    return value


def _zone(value: str) -> str:
    if not _ZONE.fullmatch(value):
        raise ValueError("a zone such as us-west-2a is allowed")
    return value


def is_image(text: str) -> bool:
    """Whether a container runtime takes it for the name of an image."""
    return _IMAGE.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """Whether it can name a label or a taint."""
    prefix, _, name = text.rpartition("/")
    return _LABEL_KEY.fullmatch(text) is not None and len(name) <= LABEL_LENGTH and len(prefix) <= 253


def is_label_value(text: str) -> bool:
    """Whether it can be a label's or a taint's value."""
    return _LABEL_VALUE.fullmatch(text) is not None and len(text) <= LABEL_LENGTH


def _labels(value: dict[str, str]) -> dict[str, str]:
    for key, text in value.items():
        if not is_label_key(key):
            raise ValueError(f"{key} is no label's name: letters, digits, '-', '_' and '.' are allowed, at most 63")
        if not is_label_value(text):
            raise ValueError(f"{key} has the value {text}: letters, digits, '-', '_' and '.' are allowed, at most 63")
    return value


T = TypeVar("T")
Several = Annotated[tuple[T, ...], BeforeValidator(_frozen)]
AsTuple = BeforeValidator(_frozen)
_NUMBER_OR_TEXT = WithJsonSchema({"type": ["string", "number"], "pattern": f"^{_QUANTITY.pattern}$"})


def _name_schema(pattern: re.Pattern[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern.pattern}$", "maxLength": LABEL_LENGTH})


DnsLabel = Annotated[str, AfterValidator(_dns_label), _name_schema(_LABEL)]
ServiceName = Annotated[str, AfterValidator(_service_name), _name_schema(_SERVICE)]
ObjectName = Annotated[str, AfterValidator(_object_name)]
LabelValue = Annotated[str, AfterValidator(_label_value)]
Cpu = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_cores), _NUMBER_OR_TEXT]
Amount = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_quantity), _NUMBER_OR_TEXT]
Memory = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_memory), _NUMBER_OR_TEXT]
Text = Annotated[str, AfterValidator(_text)]
CommandLine = Annotated[tuple[Text, ...], BeforeValidator(_words, json_schema_input_type=str | tuple[str, ...])]
"""A line as it is typed, or its words."""
ImageName = Annotated[str, AfterValidator(_image), WithJsonSchema({"type": "string", "pattern": f"^{_IMAGE.pattern}$"})]
FolderBelow = Annotated[str, AfterValidator(_text), AfterValidator(_below)]
AbsolutePath = Annotated[str, AfterValidator(_text), AfterValidator(_absolute)]
MountPath = Annotated[str, AfterValidator(_text), AfterValidator(_absolute), AfterValidator(_mount)]
Zone = Annotated[str, AfterValidator(_zone)]
Labels = Annotated[dict[str, str], AfterValidator(_labels)]
