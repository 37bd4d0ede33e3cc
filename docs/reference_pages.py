"""Writes the site's pages of settings and commands from the schemas and from `--help` itself, so
that they cannot differ from what the program does: `make docs` calls it.
"""

import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.main import get_command

from paddle_aws.operations.main import app

DOCS = Path(__file__).parent
Schema = Mapping[str, Any]


def type_name(schema: Schema, definitions: Mapping[str, Schema]) -> str:
    """Returns a setting's type in words, with the values or the range that are allowed."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        definition = definitions[name]
        if definition.get("type") == "object":
            return f"[{name}](#{name.lower()})"
        return type_name(definition, definitions)
    if "anyOf" in schema:
        names = [type_name(choice, definitions) for choice in schema["anyOf"]]
        return " or ".join(dict.fromkeys(name for name in names if name != "null"))
    if "enum" in schema:
        return ", ".join(dict.fromkeys(f"`{value}`" for value in schema["enum"]))
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {type_name(schema.get('items', {}), definitions)}"
    if kind == "object":
        values = schema.get("additionalProperties")
        of = type_name(values, definitions) if isinstance(values, Mapping) else "any"
        return f"mapping to {of}"
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f"{kind}, {least} to {most}"
    if least is not None:
        return f"{kind}, {least} or more"
    return kind if most is None else f"{kind}, {most} or less"


def table(schema: Schema, definitions: Mapping[str, Schema]) -> Iterator[str]:
    """Yields the rows of an object's settings."""
    yield "| setting | allowed | default | meaning |"
    yield "|---|---|---|---|"
    required = schema.get("required", ())
    for name, setting in schema.get("properties", {}).items():
        default = "**required**" if name in required else ""
        if "default" in setting and setting["default"] is not None:
            default = f"`{json.dumps(setting['default'])}`"
        meaning = setting.get("description")
        if meaning is None and "$ref" in setting:
            meaning = definitions[setting["$ref"].rpartition("/")[2]].get("description", "")
        meaning = " ".join((meaning or "").split())
        if examples := setting.get("examples"):
            meaning += f" For example `{examples[0]}`."
        cells = (f"`{name}`", type_name(setting, definitions), default, meaning)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def settings_page(file: str, schema: Schema) -> str:
    """Returns the page of a settings file."""
    definitions = schema.get("$defs", {})
    lines = [
        f"# Every setting of {file}",
        "",
        f"For whoever writes a `{file}`. Generated from the [schema](../{Path(file).stem}."
        "schema.json) by which editors complete and check it.",
        "",
        *table(schema, definitions),
    ]
    for name, definition in definitions.items():
        if definition.get("type") == "object":
            described = " ".join(definition.get("description", "").split())
            lines += ["", f"## {name}", "", described, "", *table(definition, definitions)]
    return "\n".join(lines) + "\n"


def command_lines(name: str, command: Any) -> Iterator[str]:
    """Yields what `--help` says of a command, and of the commands below it."""
    yield f"\n## `{name}`\n"
    text, *examples = (command.help or "").split("Example: ")
    yield text.strip()
    if examples:
        yield "\n```sh"
        yield from (" ".join(example.split()) for example in examples)
        yield "```"
    if below := getattr(command, "commands", None):
        for word, child in below.items():
            yield from command_lines(f"{name} {word}", child)
        return
    context = command.context_class(command, info_name=name)
    yield f"\n```text\n{command.get_usage(context)}\n```\n"
    records = [parameter.get_help_record(context) for parameter in command.params]
    yield "| option | meaning |"
    yield "|---|---|"
    for option, meaning in filter(None, records):
        cells = (f"`{option}`", " ".join(meaning.split()))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def commands_page() -> str:
    """Returns the page of all commands."""
    lines = [
        "# Every command and option",
        "",
        "For whoever looks for an option. Generated from `paddle-aws COMMAND --help`; "
        "[commands](../commands.md) says what they do together.",
    ]
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        lines += command_lines(f"paddle-aws {name}", command)
    return "\n".join(lines) + "\n"


PYTHON = """# Python API

For whoever submits or rehearses jobs from Python. Generated from the docstrings.

::: paddle_aws

## In a training program

::: paddle_node.fleet

::: paddle_node.report
"""


CONSTRUCTS = """# Constructs and charts

For whoever writes stacks. Generated from the docstrings of the names that
[stability](../stability.md) lists; the [cookbook](../cookbook.md) has examples.
"""


def stable_classes() -> Iterator[type]:
    """Yields the classes that stability.md names, by package."""
    _, _, text = (DOCS / "stability.md").read_text(encoding="utf-8").partition("## Constructs, by")
    words = {word.rpartition(".")[2] for word in re.findall(r"`([\w.]+)`", text.split("\n##")[0])}
    for package in ("constructs_lib", "k8s_charts", "paddle_aws.stacks"):
        there = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(there, f"{package}."):
            if not module.name.endswith("_handler"):  # What a Lambda function runs.
                for name, kind in vars(importlib.import_module(module.name)).items():
                    if inspect.isclass(kind) and kind.__module__ == module.name and name in words:
                        yield kind


def constructs_page() -> str:
    """Returns the page of the constructs and charts: mkdocstrings reads their docstrings."""
    return CONSTRUCTS + "".join(
        f"\n::: {kind.__module__}.{kind.__name__}\n" for kind in stable_classes()
    )


def main() -> None:
    """Writes the pages below docs/reference/, which git does not keep."""
    folder = DOCS / "reference"
    folder.mkdir(exist_ok=True)
    for file in ("job.yaml", "cluster.yaml"):
        schema = json.loads((DOCS / f"{Path(file).stem}.schema.json").read_text(encoding="utf-8"))
        page = folder / f"{Path(file).stem}-settings.md"
        page.write_text(settings_page(file, schema), encoding="utf-8")
    (folder / "commands.md").write_text(commands_page(), encoding="utf-8")
    (folder / "python.md").write_text(PYTHON, encoding="utf-8")
    (folder / "constructs.md").write_text(constructs_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
