"""docs/cookbook.md, each of whose examples runs, and the docstrings that the site shows."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
from constructs import Construct

from .built import PROJECT

COOKBOOK = PROJECT / "docs" / "cookbook.md"
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


def test_every_stable_name_says_what_it_takes_has_and_refuses() -> None:
    """On the site's page of constructs: args, properties, methods and errors."""
    page, stability = (
        (PROJECT / "docs" / name).read_text()
        for name in ("reference/constructs.md", "stability.md")
    )
    kinds = [
        getattr(importlib.import_module(module), name)
        for module, name in re.findall(r"^::: ([\w.]+)\.(\w+)$", page, re.M)
    ]
    promised = stability.partition("## Constructs, by name")[2].partition("### Feature flags")[0]
    names = {word for name in re.findall(r"`([\w.]+)`", promised) for word in name.split(".")}
    classes = {name for name in names if name[0].isupper() and name != "Role"}
    assert classes == {kind.__name__ for kind in kinds}
    silent = []
    for kind in kinds:
        text, source = inspect.getdoc(kind) or "", inspect.getsource(kind)
        own = inspect.getdoc(vars(kind).get("__init__")) or ""
        words = set(re.findall(r"^    (\w+): ", text, re.M)) | set(re.findall(r"`(\w+)`", own))
        if issubclass(kind, Construct):
            takes = [*inspect.signature(kind.__init__).parameters][1:]
            silent += [
                f"{kind.__name__}({prop})"
                for prop in takes
                if prop not in words | {"scope", "id", "props", "options"}
            ]
            refuses = re.search(r"\braise (Value|Setting)Error|\brefuse\(", source)
            silent += [f"{kind.__name__}: Raises"] if refuses and "Raises:" not in text else []
        silent += [
            f"{kind.__name__}.{name}"
            for name, member in vars(kind).items()
            if name[0] != "_"
            and (inspect.isfunction(member) or isinstance(member, property))
            and not inspect.getdoc(member)
        ]
    assert not silent
