"""docs/cookbook.md and docs/reference.md: each example runs, and the reference has every construct
and chart with its arguments. UPDATE_GOLDEN=1 writes the reference.
"""

import enum
import importlib
import inspect
import os
import pkgutil
import re
from pathlib import Path
from typing import Any

import cdk8s
import pytest
from constructs import Construct

import constructs_lib
import k8s_charts

from .built import PROJECT

COOKBOOK, REFERENCE = (PROJECT / "docs" / f"{name}.md" for name in ("cookbook", "reference"))
EXAMPLES = {
    f"{heading}-{number}": code
    for heading, text in re.findall(
        r"^## (.+?)\n(.*?)(?=^## |\Z)", COOKBOOK.read_text(), re.M | re.S
    )
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(EXAMPLES[name], name, "exec"), {"__name__": "__main__"})


def typed(annotation: Any) -> str:
    """Returns a type as the code writes it, without its modules."""
    (inner,) = getattr(annotation, "__args__", ()) if repr(annotation)[0] == "*" else (annotation,)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", inspect.formatannotation(inner))


def spelled(default: Any) -> str:
    """Returns a default as the code writes it; empty if there is none."""
    if default is inspect.Parameter.empty:
        return ""
    return f"`{default}`" if isinstance(default, enum.Enum) else f"`{default!r}`"


def described(package: Any, base: type) -> list[str]:
    """Returns the reference's sections on the public classes of a package, by module."""
    sections = []
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for name, kind in vars(importlib.import_module(module.name)).items():
            public = inspect.isclass(kind) and issubclass(kind, base) and name[0] != "_"
            if not public or kind.__module__ != module.name:
                continue
            what, _, rest = (inspect.getdoc(kind) or "").partition("\n\n")
            section = [f"### {name}", "", f"`from {module.name} import {name}`", "", what, ""]
            given = [
                parameter
                for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]
                if parameter.name not in ("scope", "id")
            ]
            meanings = dict(re.findall(r"^    (\w+): ((?:.+\n?)(?:^        .+\n?)*)", rest, re.M))
            if given:
                section += ["| argument | type | default | |", "|---|---|---|---|"]
            for parameter in given:
                stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
                shown = spelled(parameter.default)
                meaning = " ".join(meanings.get(parameter.name, "").split())
                cells = (
                    f"`{stars}{parameter.name}`",
                    f"`{typed(parameter.annotation)}`",
                    shown,
                    meaning,
                )
                section.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
            sections.append("\n".join(section).rstrip())
    return sections


def test_the_reference_has_every_construct_and_chart() -> None:
    text = "\n\n".join(
        [
            "# Reference for stack authors",
            "This page is for people who write stacks. It is made from the code; [the "
            "cookbook](cookbook.md) has examples. Props that many constructs share are typed "
            "dictionaries, such as `NodeGroupProps`, which an editor shows.",
            "## Constructs",
            *described(constructs_lib, Construct),
            "## Charts",
            *described(k8s_charts, cdk8s.Chart),
            "",
        ]
    )
    if os.environ.get("UPDATE_GOLDEN"):
        REFERENCE.write_text(text, encoding="utf-8")
    assert REFERENCE.read_text(encoding="utf-8") == text, "UPDATE_GOLDEN=1 writes it"
