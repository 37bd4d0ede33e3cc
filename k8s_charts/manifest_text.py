"""Documents as YAML text that every reader reads alike.

Promises: any string comes back as that very string from YAML 1.1 and 1.2 readers and from kubectl's, which differ in
what they take for a number, a truth value or a line break; equal documents give equal bytes. cdk8s's own writer leaves
DEL and NEL characters bare, which kubectl refuses or reads as line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

# A word that no reader can take for anything but text; all else stands in quotes. Quoting too much costs nothing.
_BARE = re.compile(r"(?![-.]*$)[A-Za-z_/][A-Za-z0-9_./@-]*(:[A-Za-z0-9_./@-]+)*", re.ASCII)
_NO_TEXT = frozenset(("y", "yes", "n", "no", "on", "off", "true", "false", "null", "nan", "inf"))
# A program in a ConfigMap is read as lines where that is exact.
_LINES = re.compile(r"[^\S\n]*[^\s][^\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]*\n")


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    if _BARE.fullmatch(value) and value.lower() not in _NO_TEXT:
        style = ""
    elif _LINES.fullmatch(value) and "\n" in value.rstrip("\n"):
        style = "|"
    else:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(documents: Iterable[Mapping[str, Any]]) -> str:
    """The documents as one YAML stream, keys in the order given; streams may be joined, each document has its own start."""
    return yaml.dump_all(
        documents,
        Dumper=_Dumper,
        allow_unicode=True,
        default_flow_style=False,
        explicit_start=True,
        sort_keys=False,
        width=1_000_000,
    )
